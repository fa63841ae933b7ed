from tests.integrations.bare_timm import import_timm

import_timm()
