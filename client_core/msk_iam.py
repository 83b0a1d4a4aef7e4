"""OAUTHBEARER tokens of AWS IAM for Amazon MSK, by AWS's signer (the extra `msk-iam`).

    sasl.oauthbearer.token.provider=client_core.msk_iam:token

The region is AWS_REGION, or else AWS_DEFAULT_REGION. The credentials are those that AWS's own library finds:
environment, web identity, profile, container or instance. A token is a URL that is signed here, valid for 15
minutes. It may ask AWS for credentials, so it blocks: `provider_jwt_retriever.py` calls it on the login's
thread, and logs the type of an exception only. So the types here say what is missing.

Importing this module without the extra raises ImportError, which the setting's check turns into a
ConfigError. No Java counterpart in Kafka: AWS has a login module of its own (aws-msk-iam-auth).
"""

from __future__ import annotations

import os

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.session import Session  # the signer's own dependency


class AwsRegionMissing(Exception):
    """Neither AWS_REGION nor AWS_DEFAULT_REGION is set."""


class AwsCredentialsMissing(Exception):
    """AWS's library has found no credentials."""


def token() -> tuple[str, int]:
    """Returns a token and when it expires, in milliseconds since 1970. Raises what AWS's library raises."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise AwsRegionMissing
    try:
        signed, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except AttributeError:
        if Session().get_credentials() is None:  # then the signer reads the access key of None
            raise AwsCredentialsMissing from None
        raise
    return str(signed), int(expires_ms)
