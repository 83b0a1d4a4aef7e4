"""What went wrong with the last responses, kept until somebody is told: each error is raised once.

Fatal is what keeps any metadata from coming (authentication, no common version); recoverable what a response
says of single topics. Guarded by Metadata's lock. Source: Metadata.clearErrorsAndMaybeThrowException, Kafka
4.3.
"""

from __future__ import annotations

from client_core.errors import InvalidTopicError, KafkaError, TopicAuthorizationError


class MetadataErrors:
    """The fatal error, and the topics that may not be seen or can't exist (META-19, META-20)."""

    def __init__(self) -> None:
        self.fatal: KafkaError | None = None
        self._unauthorized_topics: frozenset[str] = frozenset()
        self._invalid_topics: frozenset[str] = frozenset()

    def answered(self, unauthorized: frozenset[str], invalid: frozenset[str]) -> None:
        """What a response says takes the place of what nobody asked for yet.

        Metadata can be had, so what kept it from coming is over. Java keeps a fatal error that nobody waited
        for, and whoever waits next is told of it, be it hours later.
        """
        self.fatal = None
        self._replace_recoverable(unauthorized, invalid)

    def _replace_recoverable(self, unauthorized: frozenset[str], invalid: frozenset[str]) -> None:
        self._unauthorized_topics = unauthorized
        self._invalid_topics = invalid

    def take_fatal(self) -> KafkaError | None:
        """The fatal error, which is forgotten."""
        fatal, self.fatal = self.fatal, None
        return fatal

    def take(self, topic: str | None = None) -> KafkaError | None:
        """The gravest error, of one topic if given. All are forgotten, whomever they concern."""
        unauthorized, invalid = self._unauthorized_topics, self._invalid_topics
        self._replace_recoverable(frozenset(), frozenset())
        if topic is not None:
            unauthorized, invalid = unauthorized & {topic}, invalid & {topic}
        fatal = self.take_fatal()
        if fatal is not None:
            return fatal
        if unauthorized:
            return TopicAuthorizationError(f"Not authorized to access topics: {_listed(unauthorized)}")
        return InvalidTopicError(f"Invalid topics: {_listed(invalid)}") if invalid else None


def _listed(topics: frozenset[str]) -> str:
    return f"[{', '.join(sorted(topics))}]"
