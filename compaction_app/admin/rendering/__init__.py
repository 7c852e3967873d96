"""Transcript to HTML. Transcript text is hostile: everything here escapes, sanitises or refuses."""
