"""The supported APIs: their keys, versions and header versions.

One value per API; a test compares the versions with `messages/`. `ApiKey.of` returns None for an API that
this client does not support. Any thread; immutable. Source: ApiKeys, ApiMessageType, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final


@dataclass(frozen=True, slots=True, eq=False)
class ApiKey:
    """An API by its number and name. `flexible_from` is its first version with compact lengths and tags.

    There is one instance per API, so identity is equality.
    """

    id: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int | None

    PRODUCE: ClassVar[ApiKey]
    LIST_OFFSETS: ClassVar[ApiKey]
    METADATA: ClassVar[ApiKey]
    SASL_HANDSHAKE: ClassVar[ApiKey]
    API_VERSIONS: ClassVar[ApiKey]
    CREATE_TOPICS: ClassVar[ApiKey]
    INIT_PRODUCER_ID: ClassVar[ApiKey]
    DESCRIBE_CONFIGS: ClassVar[ApiKey]
    SASL_AUTHENTICATE: ClassVar[ApiKey]
    DESCRIBE_CLUSTER: ClassVar[ApiKey]

    @staticmethod
    def of(api_id: int) -> ApiKey | None:
        """Returns the API of a number; None for an unsupported one."""
        return _BY_ID.get(api_id)

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """2 (with tags) from the first flexible version on, 1 before. Version 0 is obsolete."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """1 (with tags) from the first flexible version on, 0 before.

        ApiVersions always has 0: its response must be readable before the versions are known (KIP-511).
        """
        return 1 if self.is_flexible(version) and self is not ApiKey.API_VERSIONS else 0

    def __str__(self) -> str:
        return self.name


ApiKey.PRODUCE = ApiKey(0, "Produce", 3, 13, flexible_from=9)
ApiKey.LIST_OFFSETS = ApiKey(2, "ListOffsets", 1, 11, flexible_from=6)
ApiKey.METADATA = ApiKey(3, "Metadata", 0, 13, flexible_from=9)
ApiKey.SASL_HANDSHAKE = ApiKey(17, "SaslHandshake", 0, 1, flexible_from=None)
ApiKey.API_VERSIONS = ApiKey(18, "ApiVersions", 0, 4, flexible_from=3)
ApiKey.CREATE_TOPICS = ApiKey(19, "CreateTopics", 2, 7, flexible_from=5)
# Version 6 is marked unstable in 4.3: its brokers advertise 0-5 and close the connection on it.
ApiKey.INIT_PRODUCER_ID = ApiKey(22, "InitProducerId", 0, 5, flexible_from=2)
ApiKey.DESCRIBE_CONFIGS = ApiKey(32, "DescribeConfigs", 1, 4, flexible_from=4)
ApiKey.SASL_AUTHENTICATE = ApiKey(36, "SaslAuthenticate", 0, 2, flexible_from=2)
ApiKey.DESCRIBE_CLUSTER = ApiKey(60, "DescribeCluster", 0, 2, flexible_from=0)

#: Every supported API, by number.
API_KEYS: Final = tuple(api for api in vars(ApiKey).values() if isinstance(api, ApiKey))

_BY_ID: Final = {api.id: api for api in API_KEYS}
