"""For clients that speak to http:// alone.

    httpx.Client(base_url="http://…", verify=NO_TLS)

httpx reads all certificate authorities for each client that it makes, even for plain HTTP: 30 ms of CPU.
"""

from __future__ import annotations

import ssl
from typing import Final

#: Trusts nobody.
NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
