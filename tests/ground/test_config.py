"""Settings: which source wins, what an error says, and that no secret is ever shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openclaw_rl import config

PORT, PORT_VARIABLE = "server.port", "OPENCLAW_RL_SERVER_PORT"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "settings.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def error_of(
    toml: str | None = None,
    flags: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
) -> str:
    path = None if toml is None else write(toml)
    with pytest.raises(config.ConfigError) as caught:
        config.load(path, flags, environment or {})
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_without_any_source_every_setting_is_its_default() -> None:
    settings, origins = config.load(environment={})
    assert settings == config.Settings()
    assert set(origins.values()) == {"default"}
    assert origins.keys() == config.fields().keys()


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() -> None:
    path = write("[server]\nport = 1001\n")
    environment = {PORT_VARIABLE: "1002"}
    flags = {PORT: 1003}
    found = [
        config.load(*sources)
        for sources in [
            (None, None, {}),
            (path, None, {}),
            (path, None, environment),
            (path, flags, environment),
        ]
    ]
    assert [settings.server.port for settings, _ in found] == [8780, 1001, 1002, 1003]
    assert [origins[PORT] for _, origins in found] == [
        "default",
        "file settings.toml",
        f"environment {PORT_VARIABLE}",
        "flag",
    ]


def test_sources_that_set_different_settings_all_count() -> None:
    settings, origins = config.load(
        write('data_dir = "somewhere"\n[learn]\nmethod = "opd"\n'),
        {"judge.votes": "5"},
        {"OPENCLAW_RL_LEARN_ENABLED": "false"},
    )
    assert settings.data_dir == Path("somewhere")
    assert (settings.learn.method, settings.learn.enabled, settings.judge.votes) == ("opd", False, 5)
    assert origins["learn.enabled"] == "environment OPENCLAW_RL_LEARN_ENABLED"
    assert origins["learn.batch_size"] == "default"


def test_the_file_of_the_working_folder_is_read_unless_another_is_named() -> None:
    write("[server]\nport = 1001\n", "openclaw-rl.toml")
    assert config.load(environment={})[0].server.port == 1001
    assert config.load(write("[engine]\nthreads = 2\n"), environment={})[0].server.port == 8780


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORT_VARIABLE, "1002")
    assert config.load()[0].server.port == 1002


def test_a_flag_that_was_not_given_changes_nothing() -> None:
    settings, origins = config.load(flags={PORT: None}, environment={})
    assert (settings.server.port, origins[PORT]) == (8780, "default")


def test_lists_in_flags_and_environment_are_split_at_commas() -> None:
    settings, _ = config.load(
        flags={"learn.lora_targets": "q_proj, v_proj,"},
        environment={"OPENCLAW_RL_SERVER_API_KEYS": "one,two"},
    )
    assert settings.learn.lora_targets == ("q_proj", "v_proj")
    assert [key.get_secret_value() for key in settings.server.api_keys] == ["one", "two"]


def test_lists_may_be_json_so_that_an_item_may_hold_a_comma() -> None:
    settings, _ = config.load(flags={"server.api_keys": '["one,two", "three"]'}, environment={})
    assert [key.get_secret_value() for key in settings.server.api_keys] == ["one,two", "three"]


def test_a_list_that_is_neither_is_refused_with_the_forms_and_without_the_secret() -> None:
    message = error_of(flags={"server.api_keys": "[sk-secret]"})
    assert "server.api_keys" in message
    assert "sk-secret" not in message
    assert '["a", "b"]' in message


def test_a_judge_that_is_none_is_refused_before_anything_starts() -> None:
    message = error_of(flags={"judge.kind": "oracle"})
    assert "judge.kind = 'oracle': use rules, self, or a base URL" in message


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_number_must_be_finite(value: str) -> None:
    assert "judge.timeout_seconds" in error_of(flags={"judge.timeout_seconds": value})


def test_variables_of_others_and_the_cache_folder_are_left_alone() -> None:
    environment = {"PATH": "/bin", "OPENCLAW_TOKEN": "x", "OPENCLAW_RL_CACHE": "/somewhere"}
    assert config.load(environment=environment)[0] == config.Settings()


def test_settings_cannot_be_changed_afterwards() -> None:
    settings, _ = config.load(environment={})
    with pytest.raises(ValueError):
        setattr(settings.server, "port", 1)  # noqa: B010 - the assignment itself must fail


def test_describe_masks_every_secret_and_shows_the_rest() -> None:
    settings, _ = config.load(
        write('[server]\napi_keys = ["hunter1", "hunter2"]\n[judge]\napi_key = "hunter3"\n'), environment={}
    )
    described = config.describe(settings)
    assert described.keys() == config.fields().keys()
    assert "hunter" not in repr(described)
    assert described["server.api_keys"] == "********, ********"
    assert described["judge.api_key"] == "********"
    assert described[PORT] == "8780"
    assert "hunter" not in repr(settings)


def test_describe_shows_that_a_secret_is_not_set() -> None:
    described = config.describe(config.Settings())
    assert (described["judge.api_key"], described["server.api_keys"]) == ("", "")


@pytest.mark.parametrize(
    ("toml", "name"),
    [
        ("[server]\nprot = 1\n", "server.prot"),
        ("colour = 1\n", "colour"),
        ("[nothing]\nport = 1\n", "nothing.port"),
        ("[server.port]\nhigh = 1\n", "server.port"),
        ("server = 3\n", "server"),
    ],
)
def test_an_unknown_name_in_the_file_is_refused_with_name_and_file(toml: str, name: str) -> None:
    message = error_of(toml)
    assert name in message
    assert "file settings.toml" in message


def test_an_unknown_variable_is_refused_by_name() -> None:
    assert "OPENCLAW_RL_SERVER_PROT" in error_of(environment={"OPENCLAW_RL_SERVER_PROT": "1"})


def test_an_unknown_flag_is_refused_by_name() -> None:
    assert error_of(flags={"serial.number": "1"}) == (
        "flag: serial.number is no setting; `openclaw-rl config` lists them"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"flags": {"server.prot": "1"}}, "flag: server.prot is no setting; did you mean server.port? "),
        ({"flags": {"learn.rate": "1"}}, "flag: learn.rate is no setting; "),
        (
            {"environment": {"OPENCLAW_RL_DEBUG": "1"}},
            "environment variable OPENCLAW_RL_DEBUG is no setting; ",
        ),
        (
            {"environment": {"OPENCLAW_RL_LEARN_METOD": "opd"}},
            "environment variable OPENCLAW_RL_LEARN_METOD is no setting;"
            " did you mean OPENCLAW_RL_LEARN_METHOD? ",
        ),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(given: dict[str, Any], message: str) -> None:
    assert error_of(**given) == f"{message}`openclaw-rl config` lists them"


@pytest.mark.parametrize("name", ["data_dir", "model.name", "server.host", "judge.kind"])
@pytest.mark.parametrize("nothing", ["", " "])
def test_nothing_is_no_name_of_a_folder_a_model_a_host_or_a_judge(name: str, nothing: str) -> None:
    message = error_of(flags={name: nothing})
    assert message == f"flag: {name} = {nothing!r}: it is empty; leave it out to get the default"


@pytest.mark.parametrize(
    ("sources", "parts"),
    [
        ({"toml": '[server]\nport = "many"\n'}, ["file settings.toml", "server.port", "'many'"]),
        ({"toml": "[server]\nport = 65536\n"}, ["file settings.toml", "server.port", "65535"]),
        ({"toml": '[learn]\nmethod = "magic"\n'}, ["file settings.toml", "learn.method", "opd"]),
        ({"toml": "[learn]\nlora_targets = [1]\n"}, ["file settings.toml", "learn.lora_targets"]),
        ({"toml": "data_dir = 7\n"}, ["file settings.toml", "data_dir", "7"]),
        ({"environment": {PORT_VARIABLE: ""}}, [f"environment {PORT_VARIABLE}", "server.port"]),
        ({"flags": {"judge.votes": "0"}}, ["flag", "judge.votes", "'0'"]),
    ],
)
def test_a_wrong_value_is_refused_with_its_source_its_name_and_the_reason(
    sources: dict[str, Any], parts: list[str]
) -> None:
    message = error_of(**sources)
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(
    "toml",
    ['[server]\napi_keys = "hunter2"\n', '[server]\napi_keys = [["hunter2"]]\n', "[judge]\napi_key = 4711\n"],
)
def test_an_error_about_a_secret_never_shows_it(toml: str) -> None:
    message = error_of(toml)
    assert "hunter2" not in message
    assert "4711" not in message
    assert "api_key" in message


def test_bad_toml_is_refused_with_the_place() -> None:
    message = error_of("[server\nport = 1\n")
    assert "settings.toml is not valid TOML" in message
    assert "line 1" in message


def test_a_file_that_is_not_text_is_refused() -> None:
    Path("settings.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(config.ConfigError, match=r"settings\.toml is not valid TOML"):
        config.load(Path("settings.toml"), environment={})


def test_a_named_file_that_is_missing_is_refused() -> None:
    with pytest.raises(config.ConfigError, match=r"^elsewhere\.toml does not exist"):
        config.load(Path("elsewhere.toml"), environment={})


def test_a_folder_in_place_of_the_file_is_refused() -> None:
    Path("settings.toml").mkdir()
    with pytest.raises(config.ConfigError, match=r"settings\.toml cannot be read"):
        config.load(Path("settings.toml"), environment={})


@pytest.mark.parametrize(
    ("model", "served"),
    [
        ({"name": "HuggingFaceTB/SmolLM2-135M-Instruct"}, "SmolLM2-135M-Instruct"),
        ({"name": "models/mine/"}, "mine"),
        ({"name": "a/b", "served_name": "assistant"}, "assistant"),
    ],
)
def test_clients_call_the_model_by_the_last_part_of_its_name_or_as_told(
    model: dict[str, str], served: str
) -> None:
    settings, _ = config.load(flags={f"model.{key}": value for key, value in model.items()}, environment={})
    assert settings.served_name == served


def test_the_store_lies_in_the_data_folder_with_home_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    settings = config.Settings()
    assert settings.home == Path("/home/someone/.openclaw-rl")
    assert settings.database == settings.home / "store.sqlite"
