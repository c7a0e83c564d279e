"""The store of several hosts, on Valkey or Redis. It needs ``pip install 'wirespeed[cluster]'``.

`Cluster` is the connection of one host to the store. `RedisTaskStore`, `RedisEventStore` and
`RedisTokenBuckets` keep tasks, events and rates there.
"""

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)
