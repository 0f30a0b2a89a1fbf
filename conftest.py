"""How many examples Hypothesis tries, in all tests and in the doctests of the sources; which tests come last.

A test says how many examples it needs to be worth something, by `@settings(max_examples=...)` or by Hypothesis's own
default of 100. A profile takes a share of that number, in every test alike: `--hypothesis-profile quick` a fifth for
`make test-quick`, `half` for `make test`, `long` five times as many for `make test-long`; without one, the number that
the test says.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import is_hypothesis_test, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What Hypothesis tries if nobody says otherwise; the profiles count in shares of it.
FULL = 100
#: No profile goes below it, unless the test itself does.
FEWEST = 5
#: Where Hypothesis keeps the settings of a test; there is no public name for it.
_SETTINGS = "_hypothesis_internal_use_settings"
_EXPLICIT = "_hypothesis_internal_settings_applied"

settings.register_profile("quick", max_examples=FULL // 5, deadline=None)
settings.register_profile("half", max_examples=FULL // 2, deadline=None)
settings.register_profile("long", max_examples=FULL * 5, deadline=None)


def examples(wanted: int, profile: int) -> int:
    """Tell how many examples to try.

    Args:
        wanted: How many the test wants.
        profile: How many the profile tries of a test that says nothing.

    >>> examples(200, 20), examples(12, 20), examples(3, 20), examples(40, 100), examples(40, 500)
    (40, 5, 3, 40, 200)
    """
    return max(wanted * profile // FULL, min(wanted, FEWEST))


def pytest_configure() -> None:
    """See that both packages of the repository are installed, or many tests would fail without saying why."""
    try:
        version("headrace-transit")
    except PackageNotFoundError:
        pytest.exit(
            "headrace-transit is not installed; .venv/bin/pip install --no-build-isolation --no-deps -e . -e transit"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put browser tests last, and let explicit numbers of examples follow the profile."""
    # Playwright leaves an event loop running in the main thread until the session ends; no test behind it could call
    # `asyncio.run`.
    items.sort(key=lambda item: "chromium" in getattr(item, "fixturenames", ()))
    profile = settings.get_current_profile_name()
    if profile not in ("quick", "half", "long"):
        return
    functions: dict[int, Any] = {}  # the cases of one parametrized test share a function
    for item in items:
        test = getattr(item, "obj", None)
        test = getattr(test, "__func__", test)
        if test is not None and is_hypothesis_test(test) and hasattr(test, _EXPLICIT):
            functions[id(test)] = test
    for test in functions.values():
        chosen: settings = getattr(test, _SETTINGS)
        share = settings.get_profile(profile).max_examples
        setattr(test, _SETTINGS, settings(chosen, max_examples=examples(chosen.max_examples, share)))


@pytest.fixture(scope="session")
def share_of_cases() -> int:
    """Tell which share of a long list of given cases to run: with the profile `quick` every fifth, else all."""
    return FULL // 20 if settings.get_current_profile_name() == "quick" else 1


@pytest.fixture(autouse=True, scope="module")
def _no_services_are_left() -> Iterator[None]:
    """Close what enrichments of a module keep open, such as caches: pages of the documentation make some, too."""
    yield
    service = sys.modules.get("headrace.enrich.service")
    if service is not None:
        service.close_services()
