"""Checks of manifests by schema, for scripts/manifests.sh, which runs this with the tools that it has installed.

validate_manifests.py kubernetes CRDS FILE...    custom resources by their definitions; the others go into FILE.core
validate_manifests.py compose SCHEMA FILE        a compose file by the schema of its format
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml

Json = dict[str, Any]


def main(kind: str, *arguments: str) -> int:
    """Check, and tell how many problems there are."""
    if kind == "compose":
        schema, file = map(Path, arguments)
        return _report(file, yaml.safe_load(schema.read_text()), yaml.safe_load(file.read_text()))
    definitions = _definitions(Path(arguments[0]))
    problems = 0
    for file in map(Path, arguments[1:]):
        documents = [each for each in yaml.safe_load_all(file.read_text()) if each]
        core = [each for each in documents if "monitoring.coreos.com" not in each["apiVersion"]]
        file.with_suffix(file.suffix + ".core").write_text(yaml.safe_dump_all(core))
        for each in documents:
            if each not in core:
                problems += _report(file, definitions[each["apiVersion"], each["kind"]], each)
        print(f"{file.name}: {len(documents)} documents, {len(documents) - len(core)} custom resources")  # noqa: T201
    return problems


def _definitions(directory: Path) -> dict[tuple[str, str], Json]:
    found = {}
    for path in directory.glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"]["metadata"] = {"type": "object"}
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = _strict(schema)
    return found


def _strict(schema: Any) -> Any:
    """Refuse fields that a definition does not know, as a cluster would drop them without a word."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(each) for name, each in schema.items()}
    if strict.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if isinstance(strict.get("properties"), dict) and not strict.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    return strict


def _report(file: Path, schema: Json, document: Json) -> int:
    problems = sorted(jsonschema.Draft7Validator(schema).iter_errors(document), key=lambda each: list(each.path))
    for problem in problems:
        where = "/".join(map(str, problem.path))
        print(f"{file}: {document.get('kind', '')} {where}: {problem.message[:500]}", file=sys.stderr)  # noqa: T201
    return len(problems)


if __name__ == "__main__":
    sys.exit(min(1, main(*sys.argv[1:])))
