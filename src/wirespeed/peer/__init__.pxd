from wirespeed.peer.connection cimport DrainingConnection, SessionConnection
