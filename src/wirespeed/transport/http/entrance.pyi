from typing_extensions import disjoint_base

from wirespeed.transport.http.exchange import Carrier
from wirespeed.transport.http.targets import HttpSite

@disjoint_base
class Entrance(Carrier):
    certificate: bytes | None
    @property
    def site(self) -> HttpSite: ...
