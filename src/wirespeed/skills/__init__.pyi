from wirespeed.skills.approvals import SkillApproval as SkillApproval
from wirespeed.skills.approvals import SkillChanges as SkillChanges
from wirespeed.skills.folder import SkillLimits as SkillLimits
from wirespeed.skills.model import SkillEntry as SkillEntry
from wirespeed.skills.model import SkillResource as SkillResource
from wirespeed.skills.skill import Skill as Skill
from wirespeed.skills.skill import SkillCatalog as SkillCatalog
