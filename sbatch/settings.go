package sbatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings has the settings of slurm.conf that callers need (slurm.conf(5)).
type Settings struct {
	Cluster string `json:"cluster"`
	// Version is the controller's (SLURM_VERSION); empty if the answer lacks it.
	Version string `json:"version,omitempty"`
	// Accounting is set if there is an accounting database (AccountingStorageType).
	Accounting bool `json:"accounting"`
	// Limits is set if the controller enforces the limits of QOS and associations (AccountingStorageEnforce).
	Limits bool `json:"limits,omitempty"`
	// MinJobAge is the time for which the controller shows an ended job; 0 for its whole lifetime.
	MinJobAge time.Duration `json:"min_job_age"`
	// KillWait is the time between TERM and KILL.
	KillWait time.Duration `json:"kill_wait"`
	// PrivateJobs is set if a user sees only the own jobs (PrivateData).
	PrivateJobs bool `json:"private_jobs,omitempty"`
	// MaxArraySize bounds the tasks of an array; 0 if the site has no arrays.
	MaxArraySize int `json:"max_array_size,omitempty"`
	// RateLimit is the bound on each user's requests; zero for none.
	RateLimit RateLimit `json:"rate_limit,omitzero"`
	// Energy is set if the accounting database has the energy of jobs (AcctGatherEnergyType).
	Energy bool `json:"energy,omitempty"`
	// Elastic is set if Slurm may start nodes that it does not show now (ResumeProgram).
	Elastic bool `json:"elastic,omitempty"`
}

// WhyNoLimits returns why no limits of QOS and associations apply; empty if some may.
func (s Settings) WhyNoLimits() string {
	switch {
	case !s.Accounting:
		return "there is no accounting database"
	case !s.Limits:
		return "the site does not enforce them"
	}
	return ""
}

// String describes the settings in one phrase.
func (s Settings) String() string {
	accounting, age, bound := "no accounting", "ended jobs are shown without end", "no bound on requests"
	if s.Accounting {
		accounting = "accounting"
	}
	if s.MinJobAge > 0 {
		age = "MinJobAge " + s.MinJobAge.String()
	}
	if s.RateLimit.PerSecond > 0 {
		bound = fmt.Sprintf("each user has %g requests a second, and %d at once", s.RateLimit.PerSecond, s.RateLimit.Burst)
	}
	return fmt.Sprintf("cluster %s, %s, %s, KillWait %s, %s", s.Cluster, accounting, age, s.KillWait, bound)
}

// RateLimit is a controller's bound on the requests of one user (slurm.conf(5): SlurmctldParameters,
// rl_enable): a bucket of Burst tokens, which gets PerSecond new ones. A command without a token sleeps and
// asks again, without a time limit.
type RateLimit struct {
	PerSecond float64 `json:"per_second"`
	Burst     int     `json:"burst"`
}

// Settings asks the controller for its settings, which costs it two requests: scontrol also pings it.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	const op = "ask for Slurm's settings"
	out, err := c.query(ctx, op, c.onCluster("scontrol", "show", "config")...)
	if err != nil {
		return Settings{}, err
	}
	s, err := parseSettings(out)
	if err != nil {
		return Settings{}, &Error{Op: op, Message: err.Error(), Err: err}
	}
	return s, nil
}

// parseSettings reads the answer of scontrol show config. The settings are in the order of their names, so an answer
// with a whole line of SlurmctldParameters, the last one that parseSettings needs, has the others. SLURM_VERSION comes later,
// but is for people alone.
func parseSettings(out string) (Settings, error) {
	values := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.HasSuffix(line, "\n") {
			values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	var s Settings
	var errAge, errWait, errArray, errRate error
	s.Cluster = values["ClusterName"]
	s.MinJobAge, errAge = parseSeconds(values, "MinJobAge")
	s.KillWait, errWait = parseSeconds(values, "KillWait")
	s.MaxArraySize, errArray = parseMaxArraySize(values["MaxArraySize"])
	s.RateLimit, errRate = parseRateLimit(values["SlurmctldParameters"])
	s.PrivateJobs = slices.Contains(strings.Split(strings.ToLower(values["PrivateData"]), ","), "jobs")
	storage, whole := values["AccountingStorageType"]
	if _, last := values["SlurmctldParameters"]; !whole || !last {
		return Settings{}, errors.New("AccountingStorageType or SlurmctldParameters is missing in the answer")
	}
	s.Version = values["SLURM_VERSION"]
	s.Elastic = values["ResumeProgram"] != "" && values["ResumeProgram"] != "(null)"
	s.Accounting = storage != "(null)" && storage != "" && storage != "accounting_storage/none"
	s.Energy = s.Accounting && measuresEnergy(values["AcctGatherEnergyType"])
	s.Limits = s.Accounting && slices.ContainsFunc(strings.Split(strings.ToLower(values["AccountingStorageEnforce"]), ","), func(what string) bool {
		return what == "limits" || what == "safe" || what == "all"
	})
	return s, errors.Join(errAge, errWait, errArray, errRate)
}

// parseSeconds reads a setting such as "300 sec".
func parseSeconds(values map[string]string, name string) (time.Duration, error) {
	number, unit, _ := strings.Cut(values[name], " ")
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || unit != "sec" {
		return 0, fmt.Errorf("cannot read %s %q", name, shorten(values[name]))
	}
	return time.Duration(n) * time.Second, nil
}

// parseMaxArraySize reads a setting that is above the largest index of a task. An answer without it knows no arrays.
func parseMaxArraySize(value string) (int, error) {
	n, ok := parseDigits(cmp.Or(value, "0"), mostIndex)
	if !ok {
		return 0, fmt.Errorf("cannot read MaxArraySize %q", shorten(value))
	}
	return int(n), nil
}

// parseRateLimit reads SlurmctldParameters (Slurm src/slurmctld/rate_limit.c: rate_limit_init).
func parseRateLimit(parameters string) (RateLimit, error) {
	values, enabled := map[string]uint64{"rl_bucket_size": 30, "rl_refill_rate": 2, "rl_refill_period": 1}, false
	for parameter := range strings.SplitSeq(parameters, ",") {
		name, value, _ := strings.Cut(strings.ToLower(parameter), "=")
		if name == "rl_enable" {
			enabled = true
		}
		if _, known := values[name]; !known {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil || n == 0 {
			return RateLimit{}, fmt.Errorf("cannot read SlurmctldParameters: %q", shorten(parameter))
		}
		values[name] = n
	}
	if !enabled {
		return RateLimit{}, nil
	}
	return RateLimit{
		PerSecond: float64(values["rl_refill_rate"]) / float64(values["rl_refill_period"]),
		Burst:     int(values["rl_bucket_size"]), //nolint:gosec // 31 bits
	}, nil
}

// measuresEnergy reads AcctGatherEnergyType, which is (null) without a plugin since Slurm 23.02.
func measuresEnergy(plugin string) bool {
	return plugin != "" && plugin != "(null)" && plugin != "acct_gather_energy/none"
}
