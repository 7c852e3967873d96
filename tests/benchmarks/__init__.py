"""Benchmarks: one JSON object a line, one module each. Run by `make bench`, on a database of their own.

Everything is compared side by side in one run, so the ratios hold on a noisy machine; single figures do not.
"""
