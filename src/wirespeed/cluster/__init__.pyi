from wirespeed.cluster.events import RedisEventStore as RedisEventStore
from wirespeed.cluster.rates import RedisTokenBuckets as RedisTokenBuckets
from wirespeed.cluster.sessions import SessionHosts as SessionHosts
from wirespeed.cluster.store import Cluster as Cluster
from wirespeed.cluster.tasks import RedisTaskStore as RedisTaskStore
