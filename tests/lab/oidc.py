"""A small provider of OpenID Connect on this machine, for what a real one cannot be made to do: wrong tokens, slowness, huge answers.

    with Provider() as p:
        p.people["ana"] = {"name": "Ana B", "groups": ["lab"]}
        … [oidc lab] issuer = {p.issuer} …
        p.fault = "nonce"       # the next tokens belong to another login"""
import base64
import hashlib
import html
import http.server
import json
import secrets
import ssl
import threading
import time
import urllib.parse

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

CLIENT, SECRET = "acequia", "not a word/of: any dictionary"
FAULTS = ("nonce", "signature", "none", "expired", "audience", "azp", "issuer", "future", "key", "userinfo")


def _key(alg):
    return ec.generate_private_key(ec.SECP256R1()) if alg == "ES256" else rsa.generate_private_key(65537, 2048)


class Provider:
    """`people`: name → claims. `fault`: what is wrong with what it says, see FAULTS and the pages below."""

    def __init__(self, alg="RS256", certificate=None, public=False):
        self.alg, self.fault, self.people, self.codes, self.tokens = alg, None, {}, {}, {}
        self.public, self.asked, self.in_userinfo = public, [], ()
        self.rotate()
        provider = self

        class Handler(_Handler):
            of = provider

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            scheme = "https"
        self.issuer = f"{scheme}://localhost:{self.server.server_address[1]}" if certificate else f"{scheme}://127.0.0.1:{self.server.server_address[1]}"

    def rotate(self):
        self.key, self.kid = _key(self.alg), secrets.token_hex(4)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.fault = None
        self.server.shutdown()
        self.server.server_close()

    def code_for(self, person, query):
        """What the login page makes of a person who has proved who they are."""
        code = secrets.token_urlsafe(24)
        self.codes[code] = (person, query)
        return code

    def id_token(self, person, query):
        now = int(time.time())
        claims = {k: v for k, v in self.people[person].items() if k not in self.in_userinfo}
        claims = {"sub": f"id-{person}", **claims, "iss": self.issuer, "aud": CLIENT, "nonce": query.get("nonce"), "iat": now, "exp": now + 300}
        claims.update({"nonce": {"nonce": "another"}, "expired": {"exp": now - 120}, "audience": {"aud": "somebody-else"},
                       "azp": {"aud": [CLIENT, "b"], "azp": "b"}, "issuer": {"iss": "https://evil.example"},
                       "future": {"iat": now + 600}}.get(self.fault, {}))
        if self.fault == "none":
            return jwt.encode(claims, None, algorithm="none", headers={"kid": self.kid})
        key = _key(self.alg) if self.fault == "signature" else self.key
        return jwt.encode(claims, key, algorithm=self.alg, headers={"kid": "unknown" if self.fault == "key" else self.kid})


class _Handler(http.server.BaseHTTPRequestHandler):
    of: Provider
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def reply(self, status, data, kind="application/json", **headers):
        data = data if isinstance(data, bytes) else (data if isinstance(data, str) else json.dumps(data)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):  # pylint: disable=invalid-name
        p, url = self.of, urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        p.asked.append(url.path)
        if p.fault == "slow":
            time.sleep(60)
        elif p.fault == "huge":
            self.reply(200, b" " * (4 << 20))
        elif p.fault == "redirect" and url.path != "/elsewhere":
            self.reply(302, b"", Location=f"{p.issuer}/elsewhere")
        elif url.path == "/.well-known/openid-configuration":
            self.reply(200, {"issuer": p.issuer if p.fault != "document" else "https://evil.example", "authorization_endpoint": f"{p.issuer}/authorize",
                             "token_endpoint": f"{p.issuer}/token", "jwks_uri": f"{p.issuer}/keys", "userinfo_endpoint": f"{p.issuer}/userinfo"})
        elif url.path == "/keys":
            algorithm = jwt.get_algorithm_by_name(p.alg) if hasattr(jwt, "get_algorithm_by_name") else jwt.algorithms.get_default_algorithms()[p.alg]
            self.reply(200, {"keys": [{**self.jwk(algorithm, p.key.public_key()), "kid": p.kid, "use": "sig"}]})
        elif url.path == "/userinfo":
            person = p.tokens.get((self.headers.get("Authorization") or "").removeprefix("Bearer "))
            self.reply(200, {"sub": "id-another" if p.fault == "userinfo" else f"id-{person}", **p.people[person]}) if person else self.reply(401, {})
        elif url.path == "/authorize":
            self.login_page(query)
        elif url.path == "/favicon.ico":
            self.reply(200, b"", "image/png")
        else:
            self.reply(404, {})

    @staticmethod
    def jwk(algorithm, public):
        if isinstance(public, rsa.RSAPublicKey):
            return json.loads(algorithm.to_jwk(public))
        n = public.public_numbers()
        text = [base64.urlsafe_b64encode(v.to_bytes(32, "big")).rstrip(b"=").decode() for v in (n.x, n.y)]
        return {"kty": "EC", "crv": "P-256", "x": text[0], "y": text[1]}

    def login_page(self, query):
        p = self.of
        if query.get("client_id") != CLIENT or query.get("code_challenge_method") != "S256" or not query.get("state"):
            self.reply(400, {"error": "invalid_request"})
            return
        fields = "".join(f'<input type="hidden" name="{k}" value="{html.escape(v)}">' for k, v in query.items())
        people = "".join(f'<button name="person" value="{html.escape(x)}">{html.escape(x)}</button>' for x in [*p.people, "nobody of these"])
        self.reply(200, f"<!doctype html><title>Provider</title><h1>Who are you?</h1><form method=post action=/authorize>{fields}{people}</form>", "text/html")

    def do_POST(self):  # pylint: disable=invalid-name
        p = self.of
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()))
        p.asked.append(self.path)
        if self.path == "/authorize":
            person = form.pop("person")
            answer = {"state": form["state"], "iss": p.issuer}
            answer.update({"code": p.code_for(person, form)} if person in p.people else {"error": "access_denied"})
            self.reply(303, b"", Location=f"{form['redirect_uri']}?{urllib.parse.urlencode(answer)}")
        elif self.path == "/token":
            self.exchange(form)
        else:
            self.reply(404, {})

    def is_the_client(self, form):
        if self.of.public:
            return form.get("client_id") == CLIENT and "Authorization" not in self.headers
        pair = base64.b64decode((self.headers.get("Authorization") or "").removeprefix("Basic ")).decode()
        return [urllib.parse.unquote_plus(x) for x in pair.split(":")] == [CLIENT, SECRET]

    def exchange(self, form):
        p = self.of
        person, query = p.codes.pop(form.get("code"), (None, {}))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=").decode()
        if not self.is_the_client(form):
            self.reply(401, {"error": "invalid_client"})
        elif not person or challenge != query["code_challenge"] or form.get("redirect_uri") != query["redirect_uri"]:
            self.reply(400, {"error": "invalid_grant"})
        else:
            access = secrets.token_urlsafe(24)
            p.tokens[access] = person
            self.reply(200, {"access_token": access, "token_type": "Bearer", "id_token": p.id_token(person, query)})
