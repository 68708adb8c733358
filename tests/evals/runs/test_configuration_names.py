"""Configurations have short names, and the newest is found by its latest verdict."""

from editloupe.evals.runs.configurations import Configuration, _set_short_names, find_newest, match_configurations


def configuration(name: str, judge: str, mode: str = "tools", last_used: str = "2026-11-18T10:00:00Z") -> Configuration:
    return Configuration(name, judge, mode, "dlebench", 4, last_used)


EVERY = _set_short_names(
    [
        configuration("aa11", "rules", last_used="2026-11-19T10:00:00Z"),
        configuration("bb22", "openai:gpt-5.1"),
        configuration("bb33", "openai:gpt-5.1"),
        configuration("cc44", "openrouter:openai/gpt-5.1", "oracle"),
        configuration("dd55", "panel of openai:a, openai:b", "plain"),
    ]
)


def test_short_names_have_no_provider_and_a_number_if_they_repeat() -> None:
    assert [own.short_name for own in EVERY] == [
        "rules/tools",
        "gpt-5.1/tools",
        "gpt-5.1/tools#2",
        "openai/gpt-5.1/oracle",
        "panel of openai:a, openai:b/plain",
    ]


def test_a_configuration_is_found_by_short_name_judge_mode_or_the_start_of_its_name() -> None:
    found = {
        text: [own.name for own in match_configurations(EVERY, text)]
        for text in ("gpt-5.1/tools", "gpt-5.1/tools#2", "openai:gpt-5.1", "oracle", "bb", "aa11", "", "none")
    }
    assert found == {
        "gpt-5.1/tools": ["bb22"],
        "gpt-5.1/tools#2": ["bb33"],
        "openai:gpt-5.1": ["bb22", "bb33"],
        "oracle": ["cc44"],
        "bb": ["bb22", "bb33"],
        "aa11": ["aa11"],
        "": [],
        "none": [],
    }


def test_the_newest_judged_last_and_ties_go_to_the_later_one() -> None:
    assert find_newest(EVERY).name == "aa11"
    assert find_newest(EVERY[1:3]).name == "bb33"
