"""Tokens per surface feature, one table per tokenizer family. Written by tools/fit_token_weights.py --write.

The weights of 27 public Claude Code sessions, drawn towards PRIOR where they say little (docs/token-estimation.md).
Features trade against each other in a fit, so one weight alone is no fact about the tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sessions_app.catalog import TokenizerFamily

# Counted per text. A run is a maximal sequence of its class; "again" counts what follows its own kind.
SURFACE = (
    "word",  # run of ASCII letters
    "letter_past_4",  # letter with four letters before it
    "letter_past_8",
    "case_change",  # capital after a small letter
    "upper_again",
    "digit",
    "digit_run",
    "symbol",  # ASCII, printable, neither letter, digit nor blank
    "symbol_run",
    "newline",
    "newline_run",
    "blank_run",  # spaces and tabs
    "blank_again",
    "indent",  # run of two blanks and more
    "glued_word",  # word just after a digit or symbol
    "digit_after_blank",
    "control",  # ESC and the like
)
# Counted per character outside ASCII.
SCRIPTS = (
    "latin",
    "greek",
    "cyrillic",
    "hebrew",
    "arabic",
    "indic",
    "thai",
    "hangul",
    "han",
    "kana",
    "punctuation",
    "arrow",
    "box",
    "symbol_sign",
    "emoji",
    "selector",
    "other",
)
# Counted per block.
BLOCKS = (
    "text_block",
    "thinking_block",
    "sealed_char",  # character of a signature without its thinking text, or of redacted data, past the seal's own
    "signature_beside_text",  # character of a signature whose thinking text is there
    "tool_use",
    "tool_argument",
    "tool_result",
    "media_token",  # images and documents, in tokens already
)
FEATURES = SURFACE + SCRIPTS + BLOCKS

# Where the data say little. Surface and block figures: rounded from fits on all files, near the published table's
# order of size (facts: token estimation). No trustworthy sample exists for most scripts: Hangul 1.35 is the published
# measurement; Han and Kana lie in the middle of the published band of 0.6 to 1.4 a character; the alphabets
# follow from their UTF-8 length (two bytes a letter, few merged).
PRIOR: Mapping[TokenizerFamily, Mapping[str, float]] = MappingProxyType(
    {
        TokenizerFamily.UNTIL_OPUS_4_6: {
            "word": 0.80,
            "letter_past_4": 0.12,
            "letter_past_8": 0.15,
            "case_change": 0.40,
            "upper_again": 0.20,
            "digit": 0.35,
            "digit_run": 0.30,
            "symbol": 0.35,
            "symbol_run": 0.50,
            "newline": 0.10,
            "newline_run": 1.50,
            "blank_run": 0.05,
            "blank_again": 0.02,
            "indent": 0.45,
            "glued_word": 0.25,
            "digit_after_blank": 0.80,
            "control": 0.50,
            "latin": 0.80,
            "greek": 0.90,
            "cyrillic": 0.60,
            "hebrew": 1.00,
            "arabic": 0.80,
            "indic": 1.20,
            "thai": 1.20,
            "hangul": 1.35,
            "han": 1.00,
            "kana": 0.85,
            "punctuation": 1.00,
            "arrow": 1.00,
            "box": 0.60,
            "symbol_sign": 1.50,
            "emoji": 2.50,
            "selector": 1.00,
            "other": 1.50,
            "text_block": 4.00,
            "thinking_block": 5.00,
            "sealed_char": 0.20,
            "signature_beside_text": 0.00,
            "tool_use": 50.0,
            "tool_argument": 10.0,
            "tool_result": 20.0,
            "media_token": 1.00,
        },
        TokenizerFamily.FROM_OPUS_4_7: {
            "word": 1.05,
            "letter_past_4": 0.30,
            "letter_past_8": 0.10,
            "case_change": 1.40,
            "upper_again": 0.50,
            "digit": 0.35,
            "digit_run": 0.80,
            "symbol": 0.40,
            "symbol_run": 0.60,
            "newline": 0.10,
            "newline_run": 1.20,
            "blank_run": 0.05,
            "blank_again": 0.05,
            "indent": 0.40,
            "glued_word": 0.80,
            "digit_after_blank": 1.50,
            "control": 0.50,
            "latin": 1.20,
            "greek": 1.10,
            "cyrillic": 0.75,
            "hebrew": 1.20,
            "arabic": 1.00,
            "indic": 1.40,
            "thai": 1.40,
            "hangul": 1.35,
            "han": 1.15,
            "kana": 1.00,
            "punctuation": 1.20,
            "arrow": 1.20,
            "box": 0.80,
            "symbol_sign": 1.80,
            "emoji": 3.00,
            "selector": 1.00,
            "other": 1.80,
            "text_block": 4.00,
            "thinking_block": 5.00,
            "sealed_char": 0.28,
            "signature_beside_text": 0.00,
            "tool_use": 45.0,
            "tool_argument": 14.0,
            "tool_result": 15.0,
            "media_token": 1.00,
        },
    }
)

# --- fitted (tools/fit_token_weights.py --write) ---
WEIGHTS: Mapping[TokenizerFamily, Mapping[str, float]] = MappingProxyType(
    {
        TokenizerFamily.UNTIL_OPUS_4_6: {
            "word": 0.829,
            "letter_past_4": 0.09,
            "letter_past_8": 0.219,
            "case_change": 0.299,
            "upper_again": 0.021,
            "digit": 0.378,
            "digit_run": 0.31,
            "symbol": 0.359,
            "symbol_run": 0.547,
            "newline": 0.196,
            "newline_run": 1.685,
            "blank_run": 0.021,
            "blank_again": 0.0,
            "indent": 0.551,
            "glued_word": 0.308,
            "digit_after_blank": 1.362,
            "control": 0.216,
            "latin": 0.777,
            "greek": 0.927,
            "cyrillic": 0.618,
            "hebrew": 1.03,
            "arabic": 0.824,
            "indic": 1.236,
            "thai": 1.236,
            "hangul": 1.452,
            "han": 1.03,
            "kana": 0.881,
            "punctuation": 1.308,
            "arrow": 0.221,
            "box": 0.474,
            "symbol_sign": 1.825,
            "emoji": 2.602,
            "selector": 1.041,
            "other": 1.545,
            "text_block": 4.09,
            "thinking_block": 9.39,
            "sealed_char": 0.203,
            "signature_beside_text": 0.012,
            "tool_use": 40.38,
            "tool_argument": 10.2,
            "tool_result": 20.14,
            "media_token": 1.0,
        },
        TokenizerFamily.FROM_OPUS_4_7: {
            "word": 1.102,
            "letter_past_4": 0.332,
            "letter_past_8": 0.0,
            "case_change": 1.574,
            "upper_again": 0.38,
            "digit": 0.18,
            "digit_run": 1.032,
            "symbol": 0.353,
            "symbol_run": 0.535,
            "newline": 0.0,
            "newline_run": 1.465,
            "blank_run": 0.105,
            "blank_again": 0.216,
            "indent": 0.375,
            "glued_word": 0.684,
            "digit_after_blank": 2.079,
            "control": 0.0,
            "latin": 1.731,
            "greek": 1.133,
            "cyrillic": 0.772,
            "hebrew": 1.236,
            "arabic": 1.03,
            "indic": 1.442,
            "thai": 1.442,
            "hangul": 1.391,
            "han": 1.184,
            "kana": 1.03,
            "punctuation": 0.802,
            "arrow": 1.215,
            "box": 0.838,
            "symbol_sign": 2.039,
            "emoji": 3.021,
            "selector": 1.031,
            "other": 1.86,
            "text_block": 4.52,
            "thinking_block": 0.0,
            "sealed_char": 0.295,
            "signature_beside_text": 0.0,
            "tool_use": 43.45,
            "tool_argument": 16.12,
            "tool_result": 12.22,
            "media_token": 1.0,
        },
    }
)
# --- end of fitted ---
