"""Checkpoint files without a process for each of them.

Hadoop's local file system starts the program `chmod` for every file it makes, and a checksum file beside each. A
micro-batch makes four to eight files, so on a small machine a quarter of its time went there. The class below sets the
permissions by Java itself and writes no checksum files; RocksDB's files and Spark's logs have checksums of their own.

Hadoop does not sync files: after a power cut, an entry of the commit log could be there and the state that it stands
for not. The class syncs a file before it is closed, and a directory after a file in it got its name. Spark writes the
offset log, then state, then the commit log; so after a power cut nothing is missing that a later file relies on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark.session.java_code import compiled_jar

if TYPE_CHECKING:
    from pathlib import Path

CLASS = "headrace.LocalFiles"
_SOURCE = """
package headrace;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Quiet());
        setWriteChecksum(false);
        setVerifyChecksum(false);
    }

    /** How often something was synced in this process, and how many nanoseconds that took. */
    public static final AtomicLong SYNCS = new AtomicLong();
    public static final AtomicLong NANOS = new AtomicLong();

    public static long syncs() {
        return SYNCS.get();
    }

    public static long nanos() {
        return NANOS.get();
    }

    static void count(long began) {
        SYNCS.incrementAndGet();
        NANOS.addAndGet(System.nanoTime() - began);
    }

    static void syncDirectory(java.io.File directory) throws IOException {
        long began = System.nanoTime();
        FileChannel channel = FileChannel.open(directory.toPath(), StandardOpenOption.READ);
        try {
            channel.force(true);
        } finally {
            channel.close();
        }
        count(began);
    }

    public static class Synced extends FilterOutputStream implements Syncable {
        private final java.io.File file;
        private boolean closed = false;

        public Synced(OutputStream out, java.io.File file) {
            super(out);
            this.file = file;
        }

        public void write(byte[] bytes, int offset, int length) throws IOException {
            out.write(bytes, offset, length);
        }

        public void hflush() throws IOException {
            out.flush();
        }

        public void hsync() throws IOException {
            long began = System.nanoTime();
            out.flush();
            ((Syncable) out).hsync();
            count(began);
        }

        public void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            try {
                hsync();
            } finally {
                out.close();
            }
            // A file that is made under another name first is synced with its directory when it gets its own.
            if (!file.getName().startsWith(".")) {
                syncDirectory(file.getParentFile());
            }
        }
    }

    public static class Quiet extends RawLocalFileSystem {
        protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
                throws IOException {
            return new Synced(super.createOutputStreamWithMode(path, append, permission), pathToFile(path));
        }

        public boolean rename(Path from, Path to) throws IOException {
            boolean done = super.rename(from, to);
            if (done) {
                syncDirectory(pathToFile(to).getParentFile());
            }
            return done;
        }

        public void setPermission(Path path, FsPermission permission) throws java.io.IOException {
            String symbols = permission.getUserAction().SYMBOL
                + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(symbols));
        }
    }
}
"""


def local_files_jar(directory: Path) -> Path:
    """Return the jar that holds the class.

    Args:
        directory: Where jars are kept.
    """
    return compiled_jar(directory, "local-files", _SOURCE)
