"""Settings: precedence, origins, and messages that say what to do."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace.config import KEYS, Settings
from headrace.errors import ConfigError, ExitCode
from headrace_transit.settings import SimulatorSettings

ROOT = Path(__file__).resolve().parents[1]


def load(tmp_path: Path, text: str | None = None, **options: object) -> Settings:
    if text is not None:
        (tmp_path / "headrace.toml").write_text(text)
    options.setdefault("environ", {})
    return Settings.load(directory=tmp_path, **options)  # type: ignore[arg-type]


def load_or_refuse(**options: object) -> Settings | ConfigError:
    try:
        return Settings.load(**options)  # type: ignore[arg-type]
    except ConfigError as error:
        return error


def test_defaults_without_any_source(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert found.broker.port == 9092
    assert found.file is None
    assert {str(found.origin(key)) for key in KEYS} == {"default"}


@pytest.mark.parametrize(
    ("file", "variable", "flag", "expected", "origin"),
    [
        (None, None, None, 300, "default"),
        (10, None, None, 10, "file"),
        (10, "20", None, 20, "environment"),
        (10, "20", "30", 30, "flag"),
        (10, None, 30, 30, "flag"),
        (None, "20", None, 20, "environment"),
        (None, "", None, 300, "default"),
    ],
)
def test_a_later_source_wins(
    tmp_path: Path, file: int | None, variable: str | None, flag: object, expected: int, origin: str
) -> None:
    text = None if file is None else f"[simulator]\nvehicles = {file}\n"
    environ = {} if variable is None else {"HEADRACE_SIMULATOR__VEHICLES": variable}
    found = load(tmp_path, text, environ=environ, flags={"simulator.vehicles": (flag, "--vehicles")})
    assert found.section(SimulatorSettings).vehicles == expected
    assert found.origin("simulator.vehicles").kind == origin


def test_origin_names_file_and_line(tmp_path: Path) -> None:
    found = load(tmp_path, "# a comment\n[broker]\n\nport = 1234\n")
    assert str(found.origin("broker.port")) == f"file {tmp_path / 'headrace.toml'}:4"


def test_the_file_can_be_named_by_variable_or_argument(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[simulator]\nseed = 5\n")
    (tmp_path / "b.toml").write_text("[simulator]\nseed = 6\n")
    assert load(tmp_path, environ={"HEADRACE_CONFIG": "a.toml"}).section(SimulatorSettings).seed == 5
    assert (
        load(tmp_path, environ={"HEADRACE_CONFIG": "a.toml"}, file=Path("b.toml")).section(SimulatorSettings).seed == 6
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[broker]\nprt = 1", "headrace.toml:2: there is no setting 'broker.prt'", "Did you mean broker.port?"),
        ("[brokr]\nport = 1", "headrace.toml:1: there is no section 'brokr'", "Did you mean [broker]?"),
        ('jobz = ["jobs.py"]', "headrace.toml:1: there is no setting 'jobz'", "Did you mean jobs?"),
        ("port = 1", "headrace.toml:1: there is no section 'port'", ".port? Put it below"),
        ("[zzz]\na = 1", "no section 'zzz'", "Sections: broker, spark, dashboard, paths, simulator, transit."),
        ("broker = 3", "broker is 3, but it is the name of a section", "[broker]"),
        ("[broker]\nport = 'abc'", "headrace.toml:2: broker.port is 'abc'", "from 0 to 65535"),
        ("[broker]\nport = 70000", "broker.port is 70000", "from 0 to 65535"),
        ("[broker]\nport = true", "broker.port is True", "from 0 to 65535"),
        ("[broker]\nbootstrap = 'kafka'", "broker.bootstrap is 'kafka'", "HOST:PORT"),
        ("[broker]\nmemory = '1 GB'", "broker.memory is '1 GB'", '"512m"'),
        (
            "[broker]\nsecurity_protocol = 'ssl'",
            "security_protocol is 'ssl'",
            "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ("[broker]\nsasl_mechanism = 'MD5'", "broker.sasl_mechanism is 'MD5'", "PLAIN, SCRAM-SHA-256"),
        ("[broker]\nsecurity_protocol = 'SASL_SSL'", "broker.sasl_username", "A login needs"),
        ("[broker]\nreplication = 0", "broker.replication is 0", "a whole number from 1"),
        (
            "[broker]\nreplication = 1\nmin_insync_replicas = 2",
            "broker.min_insync_replicas is 2, more than broker.replication (1)",
            "Nothing could be written",
        ),
        ("[broker]\nsasl_mechanism = 'PLAIN'", "which does not log in", "SASL_SSL or SASL_PLAINTEXT"),
        ("[broker]\ntls_key = 'k.pem'", "broker.tls_key is set, but broker.tls_certificate is not", "both files"),
        ("[spark]\nmaster = 'locl'", "spark.master is 'locl'", '"local[*]"'),
        ("[spark]\nstate_partitions = 20", "more than spark.key_groups (2)", "set spark.key_groups"),
        ("[spark]\nmax_events_per_batch = 0", "max_events_per_batch is 0", "a whole number from 1"),
        ("[simulator]\nrate = nan", "simulator.rate is nan", "above 0"),
        ("[simulator]\nvehicles = 1.5", "simulator.vehicles is 1.5", "whole number"),
        ("[paths]\nhome = '~no-such-user/x'", "home directory is not known", "write it out"),
        ("[simulator\nvehicles = 1", "is not valid TOML", "Correct the line"),
    ],
)
def test_a_bad_file_is_explained(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in caught.value.message
    assert str(tmp_path / "headrace.toml") in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.exit_code == ExitCode.CONFIG


@pytest.mark.parametrize(
    ("variable", "value", "message", "hint"),
    [
        ("HEADRACE_BROKER__PORT", "abc", "environment HEADRACE_BROKER__PORT: broker.port is 'abc'", "65535"),
        ("HEADRACE_BROKER__PRT", "1", "environment HEADRACE_BROKER__PRT", "Did you mean HEADRACE_BROKER__PORT?"),
        ("HEADRACE_BROKER_PORT", "1", "environment HEADRACE_BROKER_PORT", "Did you mean HEADRACE_BROKER__PORT?"),
        ("HEADRACE_QUUX__ZORK", "1", "there is no setting quux.zork", "Every setting is listed"),
    ],
)
def test_a_bad_variable_is_explained(tmp_path: Path, variable: str, value: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, environ={variable: value})
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_variable_of_another_purpose_is_left_alone(tmp_path: Path) -> None:
    assert load(tmp_path, environ={"HEADRACE_SHARED": "/somewhere"}).broker.port == 9092


def test_a_bad_flag_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--bootstrap: broker\.bootstrap is 'nowhere'"):
        load(tmp_path, flags={"broker.bootstrap": ("nowhere", "--bootstrap")})
    with pytest.raises(ConfigError, match=r"Did you mean simulator\.seed"):
        load(tmp_path, flags={"simulator.sed": ("1", "--set")})


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "[broker]\nport = -1\n[spark]\nmaster = 'x'\n", environ={"HEADRACE_SIMULATOR__SEED": "-2"})
    assert caught.value.message.startswith("3 settings are wrong")
    for key in ("broker.port is -1", "spark.master is 'x'", "simulator.seed is '-2'"):
        assert key in caught.value.message


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.toml: No such file"):
        load(tmp_path, file=Path("absent.toml"))
    with pytest.raises(ConfigError, match=r"cannot read .*~no-such-user/absent\.toml"):
        load(tmp_path, environ={"HEADRACE_CONFIG": "~no-such-user/absent.toml"})


def test_a_binary_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(tmp_path)


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    text = (
        "[broker]\nsecurity_protocol = 'SASL_SSL'\nsasl_mechanism = 'PLAIN'\n"
        "sasl_username = 'u'\nsasl_password = 'hunter2'\n"
    )
    found = load(tmp_path, text)
    assert found.broker.sasl_password is not None
    assert found.broker.sasl_password.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(found)
    assert "hunter2" not in str(found.model_dump())
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "[broker]\nsasl_password = ['hunter2']\n")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "[broker]\nsasl_password = 'hunter2'\nsecurity_protocol = 'SASL_SSL'\n")
    assert "hunter2" not in str(caught.value)


def test_home_follows_the_working_directory(tmp_path: Path) -> None:
    elsewhere = {"XDG_DATA_HOME": str(tmp_path / "xdg"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert load(tmp_path, environ=elsewhere).paths.home == tmp_path / "xdg" / "headrace"
    assert load(tmp_path, environ=elsewhere).paths.jars == tmp_path / "cache" / "headrace" / "jars"
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'headrace'\n")
    assert load(tmp_path, environ=elsewhere).paths.home == tmp_path / ".headrace"
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert load(tmp_path, environ=elsewhere).paths.home == tmp_path / "xdg" / "headrace"
    assert load(tmp_path, "", environ=elsewhere).paths.home == tmp_path / ".headrace"
    (tmp_path / ".headrace" / "jars").mkdir(parents=True)
    assert load(tmp_path, environ=elsewhere).paths.jars == tmp_path / ".headrace" / "jars"


def test_one_variable_moves_everything(tmp_path: Path) -> None:
    found = load(tmp_path, environ={"HEADRACE_HOME": "all"})
    assert (found.paths.home, found.paths.jars) == (tmp_path / "all", tmp_path / "all" / "jars")
    assert str(found.origin("paths.jars")) == "environment HEADRACE_HOME"
    found = load(tmp_path, "[paths]\njars = 'j'\n", environ={"HEADRACE_HOME": "all"})
    assert (found.paths.home, found.paths.jars) == (tmp_path / "all", tmp_path / "j")


def test_paths_in_the_file_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "h.toml").write_text("[broker]\ndata_directory = 'kafka'\n[paths]\nhome = '~/h'\n")
    found = load(tmp_path, file=Path("sub/h.toml"), environ={"HEADRACE_SPARK__CHECKPOINT_DIRECTORY": "cp"})
    assert found.broker_directory == tmp_path / "sub" / "kafka"
    assert found.paths.home == Path.home() / "h"
    assert found.checkpoint_directory == tmp_path / "cp"
    assert found.log_directory == Path.home() / "h" / "logs"


def test_origin_of_an_unknown_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Did you mean broker\.port"):
        load(tmp_path).origin("broker.prot")


def test_the_example_file_holds_every_setting_with_its_default(tmp_path: Path) -> None:
    text = (ROOT / "headrace.example.toml").read_text()
    document = tomllib.loads(text)
    commented = "\n".join(
        line.removeprefix("# ") if "= " in line and line.startswith("# ") else line for line in text.splitlines()
    )
    shown = {f"{section}.{name}" for section, table in tomllib.loads(commented).items() for name in table}
    defaults = load(tmp_path)
    assert shown == set(defaults.keys)
    for section, table in document.items():
        for name, value in table.items():
            assert defaults.value(f"{section}.{name}") == value


def test_every_setting_is_documented(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    for setting in load(tmp_path).keys.values():
        assert f"`{setting.key}`" in text
        assert setting.allowed.replace("|", "\\|") in text


@hypothesis_settings(deadline=None, max_examples=100)
@given(port=st.integers(-100, 70000), how=st.sampled_from(["file", "environment", "flag"]))
def test_any_port_is_taken_or_refused_with_its_range(
    tmp_path_factory: pytest.TempPathFactory, port: int, how: str
) -> None:
    directory = tmp_path_factory.mktemp("port")
    text = f"[broker]\nport = {port}\n" if how == "file" else None
    environ = {"HEADRACE_BROKER__PORT": str(port)} if how == "environment" else {}
    flags = {"broker.port": (port, "--port")} if how == "flag" else {}
    if 0 <= port <= 65535:
        found = load(directory, text, environ=environ, flags=flags)
        assert found.broker.port == port
        assert found.origin("broker.port").kind == how
    else:
        with pytest.raises(ConfigError, match="from 0 to 65535"):
            load(directory, text, environ=environ, flags=flags)


_toml_text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)


@hypothesis_settings(deadline=None, max_examples=200)
@given(key=st.sampled_from(sorted(KEYS)), value=_toml_text)
def test_any_text_in_a_variable_is_taken_or_refused_by_name(key: str, value: str) -> None:
    setting = KEYS[key]
    found = load_or_refuse(environ={setting.variable: value}, directory=ROOT / "tests")
    if isinstance(found, Settings):
        assert found.origin(key).kind == ("environment" if value else "default")
    else:
        assert setting.variable in found.message
        assert key in found.message
        assert found.hint


@hypothesis_settings(deadline=None, max_examples=100)
@given(text=st.text(alphabet="[]broke.port=12'\"\n{}, \x00#", max_size=60))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("any") / "headrace.toml"
    file.write_text(text)
    found = load_or_refuse(file=file, environ={})
    assert isinstance(found, Settings) or str(file) in found.message


def test_the_process_environment_is_the_default_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADRACE_SIMULATOR__SEED", "77")
    assert Settings.load(directory=tmp_path).section(SimulatorSettings).seed == 77


def test_a_section_of_a_plug_in_is_found_by_its_old_name_with_a_warning(tmp_path: Path) -> None:
    found = load(tmp_path, "[simulator]\nseed = 7\n")
    with pytest.warns(DeprecationWarning, match=r"write settings\.section\(headrace_transit\.settings\.Simulator"):
        assert found.simulator.seed == 7  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = found.nothing_like_it  # type: ignore[attr-defined]
