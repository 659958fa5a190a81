package flatten

import (
	"errors"
	"strconv"
	"testing"
)

// Days of comparisons would follow.
func TestDifferentAttributesAreLimited(t *testing.T) {
	t.Parallel()
	var s attributeSets
	for range 2 * maxAttributes {
		must(t, s.add(map[string]string{"user.same": "value", "user.other": "value"}))
	}
	const before = 3 // two attributes and one set
	for i := range (maxAttributes - before) / 2 {
		must(t, s.add(map[string]string{"user.a": strconv.Itoa(i)}))
	}
	var err error
	for i := range before {
		err = errors.Join(err, s.add(map[string]string{"user.b": strconv.Itoa(i)}))
	}
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
}
