from wirespeed.config.document import load as load
from wirespeed.config.document import loads as loads
from wirespeed.config.servers import AuthConfig as AuthConfig
from wirespeed.config.servers import Era as Era
from wirespeed.config.servers import ServerConfig as ServerConfig
from wirespeed.config.servers import Servers as Servers
from wirespeed.config.servers import ServerUrl as ServerUrl
from wirespeed.config.shapes import Transport as Transport
