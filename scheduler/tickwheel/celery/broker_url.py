"""The URL of Celery's broker in the form of kombu, the library by which Celery connects."""

from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit


def kombu_url(url: str) -> str:
    """Return a URL of redis-py in the form with which kombu connects to the same database.

    redis-py checks the certificate of a server by default, and kombu does not: without the check, another host on the
    way could read the password. kombu also splits URLs at semicolons, into a list of servers, and accepts no options
    except those of TLS.
    """
    parts = urlsplit(url.replace(";", "%3B"))
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if parts.scheme == "redis+socket":
        return url
    if parts.scheme == "unix":
        return f"redis+socket://{parts.netloc}{parts.path}?virtual_host={query.get('db', '0')}"
    options = {name: value for name, value in query.items() if name.startswith("ssl_")}
    if parts.scheme == "rediss":
        options = {"ssl_cert_reqs": "required"} | options
    path = f"/{query['db']}" if "db" in query else parts.path
    return urlunsplit(parts._replace(path=path, query=urlencode(options)))
