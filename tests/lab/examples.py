"""How many examples the tests of properties try."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(number: int, **options: Any) -> settings:
    """Settings for a test that tries `number` examples by default, and more or fewer in profiles.

    A number in `@settings` would hold in every profile.
    """
    share = settings.default.max_examples / settings.get_profile("wirespeed").max_examples
    return settings(max_examples=max(1, round(number * share)), **options)
