"""Options, ini, uniclaw.toml and environment, merged once."""

import pytest

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.modelchoice import parse_model
from pytest_uniclaw.models.grants import Tuning
from pytest_uniclaw.optiontable import OPTIONS
from pytest_uniclaw.session import providers_of, tuning_of
from pytest_uniclaw.settings import parse_size, resolve
from pytest_uniclaw.status import PartialPolicy


def test_defaults(tmp_path):
    settings = resolve({}, {}, tmp_path, {})
    assert (settings.agents, settings.models, settings.attempts) == ((), (), 1)
    assert settings.runs_dir == tmp_path / "runs"
    assert settings.partial == PartialPolicy("xfail", 0.5)
    assert settings.providers == ()
    assert settings.missing_keys == {"openai": "OPENAI_API_KEY"}


def test_command_line_beats_ini_beats_toml(tmp_path):
    (tmp_path / "uniclaw.toml").write_text('agent = "toml"\nsimulator = "toml"\nsupervisor = "toml"\n')
    settings = resolve({"uniclaw_agent": "cli"}, {"uniclaw_agent": "ini", "uniclaw_simulator": "ini"}, tmp_path, {})
    assert (settings.agents, settings.simulator.name, settings.supervisor.name) == (("cli",), "ini", "toml")


def test_keys_come_from_the_environment_only_and_are_never_shown(tmp_path):
    (tmp_path / "uniclaw.toml").write_text('[providers.mine]\nbase_url = "http://x/v1"\napi_key_env = "MY_KEY"\n')
    settings = resolve({}, {}, tmp_path, {"MY_KEY": "sk-secret", "UNICLAW_PRIVACY_TOKEN": "hush"})
    assert [(p.name, p.api_key) for p in settings.providers] == [("mine", "sk-secret")]
    assert "sk-secret" not in repr(settings)
    assert "hush" not in repr(settings)
    assert settings.privacy_environment == {"UNICLAW_PRIVACY_TOKEN": "hush"}


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("attempts", "0", "whole number of at least 1"),
        ("attempts", "-2", "whole number"),
        ("followups", "two", "whole number"),
        ("attempts", "1001", "at most 1000"),
        ("judges", "2", "expected an odd number"),
        ("judges", "1001", "expected an odd number"),
        ("turn_seconds", "20m", "positive number of seconds"),
        ("turn_seconds", "nan", "positive number of seconds"),
        ("partial", "xfail:2", "expected 'fail'"),
        ("partial", "maybe", "expected 'fail'"),
        ("network", "none", "expected one of isolated, internet"),
        ("memory", "lots", "expected a size"),
        ("privacy_file", "absent.env", "no such file"),
        ("config", "absent.toml", "no such file"),
    ],
)
def test_a_bad_value_names_the_option_and_what_was_expected(tmp_path, option, value, words):
    with pytest.raises(SettingsError, match=words) as caught:
        resolve({f"uniclaw_{option}": value}, {}, tmp_path, {})
    assert option.replace("_", "-") in str(caught.value)
    assert value in str(caught.value)


@pytest.mark.parametrize("option", ["attempts", "judges", "followups"])
def test_a_number_of_endless_digits_is_refused_in_short(tmp_path, option):
    with pytest.raises(SettingsError, match=f"--uniclaw-{option}=111.*: expected") as caught:
        resolve({f"uniclaw_{option}": "1" * 5001}, {}, tmp_path, {})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("providers = [1]", r"providers: expected tables \[providers.NAME\], got \[1\]"),
        ('providers = "x"', "providers: expected tables"),
        ("[[providers]]\nbase_url = 'http://x'", "providers: expected tables"),
        ("providers = {x = 1}", r"\[providers.x\] takes base_url"),
        ("agent = " + "[" * 5000 + "]" * 5000, "not valid TOML"),
        ("attempts = " + "1" * 5000, "not valid TOML"),
    ],
    ids=["list", "text", "tables", "number", "deep", "digits"],
)
def test_a_settings_file_of_wrong_shape_is_a_usage_error(tmp_path, text, words):
    (tmp_path / "uniclaw.toml").write_text(text)
    with pytest.raises(SettingsError, match=words):
        resolve({}, {}, tmp_path, {})


def test_an_unknown_toml_key_gets_a_suggestion(tmp_path):
    (tmp_path / "uniclaw.toml").write_text('agnet = "nanobot"\n')
    with pytest.raises(SettingsError, match=r"did you mean 'agent'"):
        resolve({}, {}, tmp_path, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[agent.pico]\nimage = 'x:1'", "agent: expected a name; did you mean [agents.pico]?"),
        ("[agent]\nimage = 'x:1'", "agent: expected a name; did you mean [agents.NAME]?"),
        ("[model.gpt]\nx = 1", "model: expected a text, got a table"),
        ("[attempts]", "attempts: expected a whole number, got a table"),
        ("[keep]", "keep: expected true or false, got a table"),
        ("agent = ['a', 'b']", "agent: expected a name, got a list"),
        ("[agentz.x]\nimage = 'x:1'", "unknown key 'agentz'; did you mean 'agents'?"),
        ("agents_ = 'x'", "unknown key 'agents_'; did you mean 'agent'?"),
        ("[provider.x]\nbase_url = 'x'", "unknown key 'provider'; did you mean 'providers'?"),
    ],
)
def test_a_table_and_a_text_are_told_apart(tmp_path, text, words):
    (tmp_path / "uniclaw.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        resolve({}, {}, tmp_path, {})
    assert str(caught.value) == f"{tmp_path}/uniclaw.toml: {words}"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_no_option_takes_a_table(tmp_path, option):
    (tmp_path / "uniclaw.toml").write_text(f"[{option.key}.x]\ny = 1")
    with pytest.raises(SettingsError, match=f"toml: {option.key}: expected "):
        resolve({}, {}, tmp_path, {})


GATEWAY = [
    ("[gateway]\nidle_second = 3", "[gateway] unknown key 'idle_second'; did you mean 'idle_seconds'?"),
    ("[gateway]\nx = 1", "[gateway] unknown key 'x'; known: idle_seconds, "),
    ("[gateway]\nidle_seconds = 0", "[gateway] idle_seconds = 0: Input should be greater than 0"),
    ("[gateway]\nidle_seconds = inf", "[gateway] idle_seconds = inf: Input should be a finite number"),
    ('[gateway]\nidle_seconds = "3"', "[gateway] idle_seconds = '3': Input should be a valid number"),
    ("[gateway]\ntries = true", "[gateway] tries = True: Input should be a valid integer"),
    ("gateway = 3", "gateway = 3: expected a table [gateway]"),
    ('[providers.a]\nbase_url = "ftp://x"', "[providers.a] base_url = 'ftp://x': must start with http:// or https://"),
    ('[providers.script]\nbase_url = "http://x"', "[providers.script] name = 'script': a provider needs a name other"),
]


@pytest.mark.parametrize(("text", "words"), GATEWAY)
def test_what_is_wrong_in_a_table_for_the_gateway_is_named(tmp_path, text, words):
    (tmp_path / "uniclaw.toml").write_text(text)

    def read():
        settings = resolve({}, {}, tmp_path, {})
        return providers_of(settings), tuning_of(settings)

    with pytest.raises(SettingsError) as caught:
        read()
    assert words in str(caught.value)


def test_a_zero_of_the_file_is_no_omission(tmp_path):
    (tmp_path / "uniclaw.toml").write_text("followups = 0\ninfra_retries = 0\nkeep = false\n")
    settings = resolve({}, {}, tmp_path, {})
    assert (settings.followups, settings.infra_retries, settings.keep) == (0, 0, False)
    for key in ("max_cost", "attempts"):
        (tmp_path / "uniclaw.toml").write_text(f"{key} = 0\n")
        with pytest.raises(SettingsError, match="=0: expected"):
            resolve({}, {}, tmp_path, {})


def test_a_provider_need_not_be_asked_for_counts(tmp_path):
    table = '[providers.a]\nbase_url = "http://x"\n'
    for line, asks in (("", True), ("stream_usage = false\n", False)):
        (tmp_path / "uniclaw.toml").write_text(table + line)
        assert {p.name: p.stream_usage for p in providers_of(resolve({}, {}, tmp_path, {}))}["a"] is asks
    (tmp_path / "uniclaw.toml").write_text(table + 'stream_usage = "no"\n')
    with pytest.raises(SettingsError, match=r"\[providers.a\] stream_usage: expected true or false"):
        resolve({}, {}, tmp_path, {})


def test_the_gateways_limits_are_read(tmp_path):
    (tmp_path / "uniclaw.toml").write_text("[gateway]\nidle_seconds = 2\ntries = 3\n")
    tuning = tuning_of(resolve({}, {}, tmp_path, {}))
    assert tuning == Tuning(idle_seconds=2.0, tries=3)


@pytest.mark.parametrize(("text", "size"), [("512m", 512 << 20), ("2g", 2 << 30), ("1.5G", 3 << 29), ("4096", 4096)])
def test_sizes(text, size):
    assert parse_size(text, "x") == size


def test_model_references(tmp_path):
    assert parse_model("script").scripted
    assert parse_model("script:a/b.yaml").slug == "scripted-b"
    choice = parse_model("mine/org/gpt-5.4")
    assert (choice.provider, choice.name, choice.slug) == ("mine", "org/gpt-5.4", "mine-org-gpt-5-4")
    assert parse_model("gpt-5.4").provider == "openai"


def test_proxies_never_stand_between_an_executor_and_its_own_sandbox(tmp_path):
    assert resolve({}, {}, tmp_path, {"PATH": "/bin"}).proxies == {}
    bare = resolve({}, {}, tmp_path, {"https_proxy": "http://p:1"}).proxies
    assert bare == {"https_proxy": "http://p:1", "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    more = resolve({}, {}, tmp_path, {"HTTP_PROXY": "http://p:1", "no_proxy": ".corp"}).proxies
    assert more["NO_PROXY"] == more["no_proxy"] == "127.0.0.1,localhost,.corp"
