"""Certificates for tests of TLS, made when a test asks for them."""

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
DAY = dt.timedelta(days=1)


def name(common_name):
    """The subject `CN=common_name,O=fletchlog tests`."""
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "fletchlog tests"), x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Authority:
    """Signs certificates, and puts PEM files into a directory."""

    def __init__(self, directory, common_name="authority"):
        """Its own certificate is `self.file`."""
        self.directory = directory
        self.name = name(common_name)
        self.key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(self.name, self.key, 0, 1).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = builder.sign(self.key, hashes.SHA256())
        self.file = self._write(f"{common_name}.pem", self.certificate.public_bytes(PEM))

    def _builder(self, subject, key, not_before, not_after):
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now + (not_before - 1) * DAY).not_valid_after(now + not_after * DAY)

    def _write(self, file, content):
        path = self.directory / file
        path.write_bytes(content)
        return str(path)

    def issue(self, common_name, hosts=(), *, not_before=0, not_after=1, password=None):
        """Files of a certificate, valid from and to so many days from now: (both, certificate alone, key alone)."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(name(common_name), key, not_before, not_after)
        if hosts:
            names = [x509.IPAddress(ipaddress.ip_address(h)) if h[0].isdigit() else x509.DNSName(h) for h in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256()).public_bytes(PEM)
        encryption = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption)
        stem = f"{self.directory.name}-{common_name}-{not_after}"
        return (
            self._write(f"{stem}.pem", private + certificate),
            self._write(f"{stem}-certificate.pem", certificate),
            self._write(f"{stem}-key.pem", private),
        )
