from __future__ import annotations

from pipo.lang.utf16 import concat, text_below, text_within, unit_at, units


def test_texts_sort_and_measure_by_utf16_units() -> None:
    assert text_below("🚢", "\uff01")
    assert not text_below("\uff01", "🚢")
    assert units("a🚢") == 3
    assert unit_at("a🚢", 1) == "\ud83d"
    assert unit_at("a🚢", 3) is None
    assert unit_at("abc", 2) == "c"
    assert text_within("\ud83d", "a🚢")
    assert text_within("\udea2\ud83d", "🚢🛟")
    assert not text_within("\ud83d\ud83d", "🚢🛟")


def test_halves_of_a_character_join() -> None:
    assert concat(["\ud83d", "\udea2"]) == "🚢"
    assert concat(["\udea2", "\ud83d"]) == "\udea2\ud83d"
