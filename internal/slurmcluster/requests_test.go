package slurmcluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRequestsAreReadByTypeAndUser(t *testing.T) {
	t.Parallel()
	const said = `*******************************************************
Jobs submitted: 3

Latency for 1000 calls to gettimeofday(): 32 microseconds

Remote Procedure Call statistics by message type
	REQUEST_PARTITION_INFO                  ( 2009) count:16     ave_time:146    total_time:2337
	MESSAGE_A_NAME_OF_FORTY_CHARACTERS_AND_1( 1002) count:2      ave_time:1      total_time:2

Remote Procedure Call statistics by user
	root            (       0) count:62     ave_time:9      total_time:558
	researcher      (    1001) count:1000000 ave_time:9      total_time:558

Pending RPC statistics
	REQUEST_TERMINATE_JOB                   ( 6011) count:7      n1
`
	want := Requests{
		map[string]int64{"REQUEST_PARTITION_INFO": 16, "MESSAGE_A_NAME_OF_FORTY_CHARACTERS_AND_1": 2},
		map[string]int64{"root": 62, "researcher": 1_000_000},
	}
	got := parseRequests(said)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	earlier := Requests{map[string]int64{"REQUEST_PARTITION_INFO": 16}, map[string]int64{"root": 60}}
	want = Requests{map[string]int64{"MESSAGE_A_NAME_OF_FORTY_CHARACTERS_AND_1": 2}, map[string]int64{"root": 2, "researcher": 1_000_000}}
	if diff := cmp.Diff(want, got.Since(earlier)); diff != "" {
		t.Errorf("since (-want +got):\n%s", diff)
	}
}
