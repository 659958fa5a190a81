package slurmcluster

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
)

// Requests are the numbers of requests that a controller has had since its start, or since midnight.
type Requests struct {
	// ByType has the requests of all users and daemons by their type, such as REQUEST_PARTITION_INFO; ByUser has those
	// of all types by the name of the user.
	ByType, ByUser map[string]int64
}

// Requests asks the controller for them. That is a request of type REQUEST_STATS_INFO itself.
func (c Cluster) Requests(ctx context.Context) (Requests, error) {
	out, err := c.run(ctx, "sdiag")
	if err != nil {
		return Requests{}, err
	}
	r := parseRequests(out)
	if len(r.ByType) == 0 || len(r.ByUser) == 0 {
		return r, fmt.Errorf("count requests: cannot read %q", out)
	}
	return r, nil
}

// requestCount matches a line of sdiag such as "	REQUEST_JOB_INFO   ( 2003) count:12   ave_time:…" or
// "	researcher   (  1001) count:3   …".
var requestCount = regexp.MustCompile(`^\t(\S+?) *\( *\d+\) count:(\d+)\s`)

// parseRequests reads the statistics of requests in the output of sdiag(1).
func parseRequests(out string) Requests {
	r := Requests{map[string]int64{}, map[string]int64{}}
	var counts map[string]int64
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		found := requestCount.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "Remote Procedure Call statistics by message type"):
			counts = r.ByType
		case strings.HasPrefix(line, "Remote Procedure Call statistics by user"):
			counts = r.ByUser
		case found != nil && counts != nil:
			counts[found[1]], _ = strconv.ParseInt(found[2], 10, 64) // digits
		case found == nil && !strings.HasPrefix(line, "\t"):
			counts = nil
		}
	}
	return r
}

// Since returns the requests after an earlier answer, without types and users that had none.
func (r Requests) Since(earlier Requests) Requests {
	return Requests{since(r.ByType, earlier.ByType), since(r.ByUser, earlier.ByUser)}
}

func since(now, earlier map[string]int64) map[string]int64 {
	now = maps.Clone(now)
	for name, n := range earlier {
		if now[name] -= n; now[name] == 0 {
			delete(now, name)
		}
	}
	return now
}
