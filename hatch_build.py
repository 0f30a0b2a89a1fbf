"""Compile the protobuf schemas, as a build hook of hatchling and as a script.

Every `.proto` in a directory `schemas` below `src` becomes a `_pb2.py` and a `_pb2.pyi` beside it. They are not kept in
git: a wheel, an editable install and `python hatch_build.py` (what the Makefile calls) make them from the schemas, so
the two cannot drift apart. A module is only written when its content changes, so that running this again costs nothing
downstream.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script on a machine without hatchling
    BuildHookInterface = object  # type: ignore[misc,assignment]

ROOT = Path(__file__).resolve().parent
SOURCE = Path("src")
PAGE = SOURCE / "headrace" / "dashboard" / "static" / "index.html"


class CompileError(RuntimeError):
    """A schema cannot be compiled; protoc has already said why on stderr."""


def compile_schemas(root: Path = ROOT) -> list[Path]:
    """Compile all schemas below `root`; returns the modules that were written because they were new or had changed."""
    import grpc_tools
    from grpc_tools import protoc

    source = root / SOURCE
    # Paths from `src` on, so that the generated modules import each other as headrace.events.schemas.<name>_pb2.
    schemas = sorted(path.relative_to(source).as_posix() for path in source.rglob("schemas/*.proto"))
    if not schemas:
        raise CompileError(f"no .proto file in a directory schemas below {source}; is this a complete source tree?")
    written = []
    with tempfile.TemporaryDirectory(prefix="headrace-schemas-") as out:
        arguments = [
            "protoc",
            f"-I{source}",
            f"-I{Path(grpc_tools.__file__).parent / '_proto'}",
            f"--python_out={out}",
            *_stub_arguments(out),
            *schemas,
        ]
        if protoc.main(arguments) != 0:
            raise CompileError(f"protoc refused a schema below {source}; its message above names file and line")
        for made in sorted(Path(out).rglob("*_pb2.py*")):
            target = source / made.relative_to(out)
            content = made.read_bytes()
            if not target.exists() or target.read_bytes() != content:
                # A rename is atomic: another process that imports the module meanwhile sees the old one or the new one.
                draft = target.with_name(f".{target.name}.draft")
                draft.write_bytes(content)
                draft.replace(target)
                written.append(target)
        _remove_leftovers(source, schemas)
    return written


def _remove_leftovers(source: Path, schemas: list[str]) -> None:
    """Remove modules of schemas that are gone: two modules that define a message of one name cannot be imported."""
    stems = {source / schema.removesuffix(".proto") for schema in schemas}
    for module in source.rglob("schemas/*_pb2.py*"):
        if module.with_name(module.name.partition("_pb2.py")[0]) not in stems:
            module.unlink()


def _stub_arguments(out: str) -> list[str]:
    """Stubs by mypy-protobuf where it is installed, else by protoc itself (good enough for users of a wheel)."""
    plugin = Path(sysconfig.get_path("scripts")) / "protoc-gen-mypy"
    if plugin.exists():
        return [f"--plugin=protoc-gen-mypy={plugin}", f"--mypy_out=quiet:{out}"]
    return [f"--pyi_out={out}"]


class SchemaBuildHook(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Compiles the schemas before hatchling collects the files of a wheel or of an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  the interface's names
        """Called by hatchling before each build."""
        if self.target_name == "wheel":
            compile_schemas(Path(self.root))
            if version == "standard" and not self._has_page():
                self.app.display_warning(f"{PAGE} is missing: the dashboard has no page. Build it first: make frontend")

    def _has_page(self) -> bool:
        """Whether the page of the dashboard is built; a package without a dashboard needs none."""
        page = Path(self.root) / PAGE
        return page.is_file() or not page.parents[1].is_dir()


if __name__ == "__main__":
    # The packages whose schemas are compiled, by their directories below this one; this one if none is named.
    for directory in sys.argv[1:] or ["."]:
        for module in compile_schemas(ROOT / directory):
            sys.stdout.write(f"wrote {module.relative_to(ROOT)}\n")
