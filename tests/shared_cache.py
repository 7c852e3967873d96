"""A cache on a Redis that several processes of the tests share."""

from __future__ import annotations

from django.core.cache.backends.redis import RedisCache


class OwnKeysCache(RedisCache):
    """Forgets the keys of its own process alone; Django's forgets the whole database, those of the others too."""

    def clear(self) -> bool:
        client = self._cache.get_client(None, write=True)
        if keys := list(client.scan_iter(match=f"{self.key_prefix}:*")):
            client.delete(*keys)
        return True
