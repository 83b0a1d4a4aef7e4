from __future__ import annotations
import asyncio
from tests.support.http_app import HttpApp, until
from tests.support.served import Served, on_loop

async def ask(s, head, body):
    c = await s.call()
    c.send(head + body)
    try:
        return await asyncio.wait_for(c.answer(), 2)
    except Exception as e:
        return repr(e)

def test_cl():
    web = HttpApp(max_body_bytes=1000)
    web.producer.set_topics({"orders": 1})
    async def go():
        async with Served(web.app) as s:
            H=b"POST /v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
            for cl in (b"0"*30+b"5000", b"0"*4400+b"5000", b"0"*30+b"50"):
                print(cl[-10:], len(cl), await ask(s, H+b"Content-Length: "+cl+b"\r\n\r\n", b"x"*5000), len(web.producer.submitted))
            print("TE+CL", await ask(s, H+b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", b"1388\r\n"+b"x"*5000+b"\r\n0\r\n\r\n"), len(web.producer.submitted))
            print("TE chunked", await ask(s, H+b"Transfer-Encoding: chunked\r\n\r\n", b"1388\r\n"+b"x"*5000+b"\r\n0\r\n\r\n"), len(web.producer.submitted))
            H3=b"POST /v3/clusters/x/topics/orders/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            print("v3", await ask(s, H3+b"Content-Length: "+b"0"*4400+b"2\r\n\r\n", b"{}"), len(web.producer.submitted))
    on_loop("asyncio", go())
