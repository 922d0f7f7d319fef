from datetime import datetime

from almanac import Zone

UTC = Zone.fixed("UTC", 0)
BERLIN = Zone.with_summer_time(
    "Berlin", winter=1, begins=datetime(2024, 3, 31, 1), ends=datetime(2024, 10, 27, 1)
)
NEW_YORK = Zone.with_summer_time(
    "New York", winter=-5, begins=datetime(2024, 3, 10, 7), ends=datetime(2024, 11, 3, 6)
)
