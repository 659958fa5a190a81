package affinity

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestNumbersAreListedAsLinuxListsThem(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for want, numbers := range map[string][]int{
		"":         nil,
		"7":        {7},
		"0-1":      {0, 1},
		"0-3,8":    {0, 1, 2, 3, 8},
		"0,2,4-99": append([]int{0, 2}, between(4, 99)...),
	} {
		if got := Format(numbers); got != want {
			t.Errorf("%v is listed as %q, want %q", numbers, got, want)
		}
	}
}

func between(first, last int) (numbers []int) {
	for n := first; n <= last; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}
