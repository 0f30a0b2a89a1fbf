"""A Spark plugin that closes the sockets of Spark's state server.

In a stateful Python task Spark starts a server for the worker's calls to the state store
(`TransformWithStateInPySparkStateServer`). It accepts one connection per task and never closes it, so an executor loses
one open file per state task until it has none left. The server's `run` method returns normally in the usual case, and
nothing else holds the channel.

The plugin wraps that method before Spark loads its class: the original becomes `headraceRun`, and a new `run` calls it
and then closes the stream that it read from, which closes the channel. A Spark that closes the channel itself is not
disturbed: to close a closed stream does nothing. Where the class is not as expected, it is left as it is and a warning
says so.

`docs/spark-state-server-leak.md` has the description of the fault for Spark's developers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.dev import JarCache
from headrace.spark.session.java_code import compiled_jar

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: What `spark.plugins` names.
PLUGIN = "headrace.StateServerPlugin"
_SOURCE = """
package headrace;

import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandles;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.xbean.asm9.ClassReader;
import org.apache.xbean.asm9.ClassVisitor;
import org.apache.xbean.asm9.ClassWriter;
import org.apache.xbean.asm9.FieldVisitor;
import org.apache.xbean.asm9.Label;
import org.apache.xbean.asm9.MethodVisitor;
import org.apache.xbean.asm9.Opcodes;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

public class StateServerPlugin implements SparkPlugin {
    private static final Logger LOG = LoggerFactory.getLogger(StateServerPlugin.class);
    private static final String PACKAGE = "org.apache.spark.sql.execution.python.streaming.";
    private static final String SERVER = PACKAGE + "TransformWithStateInPySparkStateServer";
    // A class of the same package and class loader: it gives the right to define the server's class there.
    private static final String NEIGHBOUR = PACKAGE + "ValueStateInfo";
    private static final String ORIGINAL = "headraceRun";

    // A plugin without hooks: it is here to be loaded before the first task.
    public DriverPlugin driverPlugin() {
        install();
        return null;
    }

    public ExecutorPlugin executorPlugin() {
        install();
        return null;
    }

    private static synchronized void install() {
        try {
            Class neighbour = Class.forName(NEIGHBOUR, false, Thread.currentThread().getContextClassLoader());
            byte[] code = closing(original(neighbour.getClassLoader()));
            try {
                MethodHandles.privateLookupIn(neighbour, MethodHandles.lookup()).defineClass(code);
            } catch (LinkageError loaded) {
                // Loaded before: by this plugin for an earlier application of this process, or by Spark.
                Class.forName(SERVER, false, neighbour.getClassLoader()).getDeclaredMethod(ORIGINAL, new Class[0]);
            }
        } catch (Exception problem) {
            LOG.warn("Spark's state server leaks one socket per task, and this could not be prevented", problem);
        }
    }

    private static byte[] original(ClassLoader loader) throws IOException {
        InputStream file = loader.getResourceAsStream(SERVER.replace('.', '/') + ".class");
        if (file == null) {
            throw new IOException(SERVER + " is not there");
        }
        try {
            return file.readAllBytes();
        } finally {
            file.close();
        }
    }

    private static byte[] closing(byte[] code) throws IOException {
        ClassReader reader = new ClassReader(code);
        ClassWriter writer = new ClassWriter(reader, 0);
        Renaming renaming = new Renaming(writer);
        reader.accept(renaming, 0);
        if (!renaming.hasRun || !renaming.hasStream) {
            throw new IOException(SERVER + " is another one than this plugin was written for");
        }
        return writer.toByteArray();
    }

    public static class Renaming extends ClassVisitor {
        private static final String STREAM = "java/io/DataInputStream";
        private String owner;
        boolean hasRun = false;
        boolean hasStream = false;

        Renaming(ClassVisitor next) {
            super(Opcodes.ASM9, next);
        }

        public void visit(int version, int access, String name, String signature, String above, String[] interfaces) {
            owner = name;
            super.visit(version, access, name, signature, above, interfaces);
        }

        public FieldVisitor visitField(int access, String name, String type, String signature, Object value) {
            hasStream = hasStream || (name.equals("inputStream") && type.equals("L" + STREAM + ";"));
            return super.visitField(access, name, type, signature, value);
        }

        public MethodVisitor visitMethod(int access, String name, String type, String signature, String[] thrown) {
            boolean isRun = name.equals("run") && type.equals("()V");
            hasRun = hasRun || isRun;
            return super.visitMethod(access, isRun ? ORIGINAL : name, type, signature, thrown);
        }

        public void visitEnd() {
            addRun();
            addClose();
            super.visitEnd();
        }

        // try { headraceRun(); } finally { headraceClose(); }
        private void addRun() {
            MethodVisitor body = super.visitMethod(Opcodes.ACC_PUBLIC, "run", "()V", null, null);
            Label start = new Label();
            Label end = new Label();
            Label failed = new Label();
            body.visitCode();
            body.visitTryCatchBlock(start, end, failed, null);
            body.visitLabel(start);
            call(body, ORIGINAL);
            body.visitLabel(end);
            call(body, "headraceClose");
            body.visitInsn(Opcodes.RETURN);
            body.visitLabel(failed);
            body.visitFrame(Opcodes.F_SAME1, 0, null, 1, new Object[] {"java/lang/Throwable"});
            body.visitVarInsn(Opcodes.ASTORE, 1);
            call(body, "headraceClose");
            body.visitVarInsn(Opcodes.ALOAD, 1);
            body.visitInsn(Opcodes.ATHROW);
            body.visitMaxs(1, 2);
            body.visitEnd();
        }

        // if (inputStream != null) { try { inputStream.close(); } catch (IOException ignored) { } }
        private void addClose() {
            MethodVisitor body = super.visitMethod(Opcodes.ACC_PUBLIC, "headraceClose", "()V", null, null);
            Label start = new Label();
            Label end = new Label();
            Label failed = new Label();
            Label absent = new Label();
            body.visitCode();
            body.visitTryCatchBlock(start, end, failed, "java/io/IOException");
            stream(body);
            body.visitJumpInsn(Opcodes.IFNULL, absent);
            body.visitLabel(start);
            stream(body);
            body.visitMethodInsn(Opcodes.INVOKEVIRTUAL, STREAM, "close", "()V", false);
            body.visitLabel(end);
            body.visitInsn(Opcodes.RETURN);
            body.visitLabel(failed);
            body.visitFrame(Opcodes.F_SAME1, 0, null, 1, new Object[] {"java/io/IOException"});
            body.visitInsn(Opcodes.POP);
            body.visitLabel(absent);
            body.visitFrame(Opcodes.F_SAME, 0, null, 0, null);
            body.visitInsn(Opcodes.RETURN);
            body.visitMaxs(1, 1);
            body.visitEnd();
        }

        private void stream(MethodVisitor body) {
            body.visitVarInsn(Opcodes.ALOAD, 0);
            body.visitFieldInsn(Opcodes.GETFIELD, owner, "inputStream", "L" + STREAM + ";");
        }

        private void call(MethodVisitor body, String name) {
            body.visitVarInsn(Opcodes.ALOAD, 0);
            body.visitMethodInsn(Opcodes.INVOKEVIRTUAL, owner, name, "()V", false);
        }
    }
}
"""


def state_server_jar(directory: Path) -> Path:
    """Return the jar that holds the plugin.

    Args:
        directory: Where jars are kept.
    """
    return compiled_jar(directory, "state-server", _SOURCE)


def plugin_settings() -> dict[str, str]:
    """Return the settings with which a session of your own loads the plugin.

    Give them to the builder of the first session of a process: a Java process finds a class only if it was started with
    its jar. `headrace run` does this by itself.
    """
    jar = str(state_server_jar(JarCache().directory))
    return {"spark.plugins": PLUGIN, "spark.jars": jar, "spark.driver.extraClassPath": jar}


def warn_of_leak(spark: SparkSession) -> None:
    """Warn if a session does not have the plugin: a streaming query in it ends when its open files are used up."""
    if PLUGIN not in spark.sparkContext.getConf().get("spark.plugins", ""):
        log.warning(
            "this Spark session leaks one socket per state task, until the query fails for lack of open files; "
            "add the settings of headrace.spark.state.state_server.plugin_settings() to the session's builder"
        )
