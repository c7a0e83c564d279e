from wirespeed.server.middleware.standard import CacheResults as CacheResults
from wirespeed.server.middleware.standard import LimitRate as LimitRate
from wirespeed.server.middleware.standard import LimitResponses as LimitResponses
from wirespeed.server.middleware.standard import Retry as Retry
from wirespeed.server.middleware.standard import Timing as Timing
