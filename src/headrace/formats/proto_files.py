"""Schemas of Protobuf as bytes: from a compiled class, or from a `.proto` file that is compiled on the spot.

A format travels to tasks that have neither the user's generated modules nor the `.proto` file. So it holds the
serialised descriptors of the file of its message and of every file that this one imports.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from headrace import extras
from headrace.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: protoc needs milliseconds; what takes longer waits for something.
_TIMEOUT = 60
_SUFFIX = ".proto"


def descriptor_files(descriptor: Descriptor) -> tuple[bytes, ...]:
    """Give the file of a message and all files that it imports, serialised, the imported ones first."""
    collected: dict[str, bytes] = {}

    def collect(file: Any) -> None:
        for dependency in file.dependencies:
            if dependency.name not in collected:
                collect(dependency)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        collected[file.name] = proto.SerializeToString(deterministic=True)

    collect(descriptor.file)
    return tuple(collected.values())


@lru_cache(maxsize=256)
def find_message(files: tuple[bytes, ...], name: str) -> Descriptor:
    """Give the message of a full name from serialised files.

    Raises:
        KeyError: There is no such message.
    """
    # A pool for each format: two topics may come with different versions of the same file.
    pool = descriptor_pool.DescriptorPool()
    for content in files:
        pool.AddSerializedFile(content)
    return pool.FindMessageTypeByName(name)


def message_of_class(message: object) -> Descriptor:
    """Give the descriptor of a compiled class.

    Raises:
        SchemaError: It is no class of Protobuf.
    """
    found = message if isinstance(message, Descriptor) else getattr(message, "DESCRIPTOR", None)
    if not isinstance(found, Descriptor):
        raise SchemaError(
            f"protobuf() was given {message!r}, which is no message type",
            hint="Give a generated class such as parcel_pb2.Scan, or the path of a .proto file and message=.",
        )
    return found


def compile_message(path: Path, name: str | None, include: Sequence[str | Path] = ()) -> Descriptor:
    """Compile a `.proto` file and give one of its messages. Nothing is written but a temporary file.

    Args:
        path: The file.
        name: The message, with or without its package; None: the only one of the file.
        include: Directories where imported files are, beside the directory of the file.

    Raises:
        SchemaError: The file is missing, has an error, or has no such message.
        MissingExtraError: The compiler is not installed.
    """
    if not path.is_file():
        raise SchemaError(
            f"there is no schema {path} (looked for at {path.absolute()})",
            hint='Give a path that does not depend on the working directory: Path(__file__).with_name("parcel.proto").',
        )
    if missing := [str(each) for each in include if not Path(each).is_dir()]:
        raise SchemaError(f"include names {missing[0]}, which is no directory", hint="Name the roots of imports.")
    compiled = descriptor_pb2.FileDescriptorSet.FromString(_compiled(path, include))
    own = compiled.file[-1]
    full_name = _full_name(path, own, name)
    return find_message(tuple(file.SerializeToString(deterministic=True) for file in compiled.file), full_name)


def is_path(message: object) -> bool:
    """Tell whether a message is given as the path of its file."""
    return isinstance(message, str | Path)


def _compiled(path: Path, include: Sequence[str | Path]) -> bytes:
    """Run protoc; give the set of descriptors, the file itself last."""
    extras.require("protobuf", by=f"protobuf({path.name!r})")
    import grpc_tools

    known = Path(grpc_tools.__file__).parent / "_proto"
    # A file that lies below an include directory is known by its path from there, as its importers name it.
    roots = [Path(each).absolute() for each in include]
    target = path.absolute()
    if not any(target.is_relative_to(root) for root in roots):
        roots.insert(0, target.parent)
    with tempfile.TemporaryDirectory(prefix="headrace-proto-") as directory:
        out = Path(directory) / "descriptors"
        command = [sys.executable, "-m", "grpc_tools.protoc", *(f"-I{root}" for root in roots), f"-I{known}"]
        command += ["--include_imports", f"--descriptor_set_out={out}", str(target)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise SchemaError(
                f"the compiler of Protobuf did not run on {path}: {problem}", hint="Give a compiled class instead."
            ) from problem
        if done.returncode != 0 or not out.is_file():
            complaint = done.stderr.decode(errors="replace").strip() or f"protoc ended with {done.returncode}"
            hint = "Files are imported from the directory of the file; name other roots with include=[...]."
            raise SchemaError(f"{path} cannot be compiled:\n{complaint}", hint=hint)
        return out.read_bytes()


def _full_name(path: Path, file: descriptor_pb2.FileDescriptorProto, name: str | None) -> str:
    known = list(_names(file.message_type, f"{file.package}." if file.package else ""))
    top = [f"{file.package}.{each.name}" if file.package else each.name for each in file.message_type]
    if name is None:
        if len(top) == 1:
            return top[0]
        raise SchemaError(
            f"{path} has {len(top)} messages, and protobuf() was not told which one a record is",
            hint=f"Name it: message={top[0].rpartition('.')[2]!r}. There are: {', '.join(top)}."
            if top
            else "Declare a message in it.",
        )
    matches = [each for each in known if each == name] or [each for each in known if each.endswith(f".{name}")]
    if len(matches) == 1:
        return matches[0]
    what = "several messages" if matches else "no message"
    raise SchemaError(f"{path} has {what} {name!r}", hint=f"There are: {', '.join(matches or known)}.")


def _names(messages: Iterable[descriptor_pb2.DescriptorProto], prefix: str) -> Iterable[str]:
    for message in messages:
        if not message.options.map_entry:
            yield prefix + message.name
            yield from _names(message.nested_type, f"{prefix}{message.name}.")


def checked_message(files: tuple[bytes, ...], name: str) -> Descriptor:
    """Give the message of a format, or say that its descriptors are broken.

    Raises:
        SchemaError: They are.
    """
    try:
        return find_message(files, name)
    except (KeyError, TypeError, DecodeError) as problem:
        raise SchemaError(
            f"the descriptors of {name} do not fit together: {problem}", hint="Build the format by protobuf(...)."
        ) from problem
