package keywords

import "time"

// ParseTime reads a moment as ISO 8601 has it: a year, a month or a day, or a day and a time of the
// day with or without a zone; without one it is UTC. Python's isoparse also reads week dates, which
// this does not (codalab/model/bundle_model.py: search_bundles).
func ParseTime(text string) (time.Time, error) {
	for _, day := range []string{"2006-01-02", "20060102"} {
		for _, clock := range []string{"T15:04:05", "T15:04", "T15", "T150405", "T1504", " 15:04:05", " 15:04", " 15"} {
			for _, zone := range []string{"", "Z07:00", "Z0700", "Z07"} {
				if t, err := time.Parse(day+clock+zone, text); err == nil {
					return t, nil
				}
			}
		}
	}
	for _, form := range []string{"2006-01-02", "20060102", "2006-01", "2006"} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, Refuse("Unable to parse datetime. Datetime must be specified as an ISO-8601 datetime string such as YYYY-MM-DD.")
}
