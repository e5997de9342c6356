"""An object store on this machine, as S3 speaks, for tests of addresses."""

from contextlib import contextmanager

import pytest


@contextmanager
def object_store(folder, prefix, monkeypatch):
    """Holds the files of a folder as s3://bucket/PREFIX/...; gives what follows in an address."""
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server.start()
    try:
        host, port = server.get_host_and_port()
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        for path in folder.rglob("*"):
            if path.is_file():
                name = path.relative_to(folder).as_posix()
                client.upload_file(str(path), "bucket", f"{prefix}/{name}")
        yield f"?scheme=http&endpoint_override={host}:{port}&region=us-east-1"
    finally:
        server.stop()
