package signin

import "testing"

func TestPasswordFitsItsHashOnly(t *testing.T) {
	t.Parallel()
	cost := PasswordCost{Passes: 1, KiB: 8}
	hashed := HashPassword("secret", cost)
	if err := CheckPasswordHash(hashed); err != nil {
		t.Error(err)
	}
	if fits, outdated := passwordFits("secret", hashed, cost); !fits || outdated {
		t.Errorf("fits %v, outdated %v", fits, outdated)
	}
	if fits, outdated := passwordFits("secret", hashed, PasswordCost{Passes: 2, KiB: 8}); !fits || !outdated {
		t.Errorf("at another cost: fits %v, outdated %v", fits, outdated)
	}
	for _, other := range []string{"", "Secret", "secret "} {
		if fits, _ := passwordFits(other, hashed, cost); fits {
			t.Errorf("%q fits", other)
		}
	}
	for _, bad := range []string{"", "secret", "$argon2id$v=19$m=8$x$y"} {
		if CheckPasswordHash(bad) == nil {
			t.Errorf("%q is taken for a hash", bad)
		}
		if fits, _ := passwordFits("secret", bad, cost); fits {
			t.Errorf("a password fits %q", bad)
		}
	}
}

func TestHashOfNobodyIsCheckedLikeAnother(t *testing.T) {
	t.Parallel()
	cost := PasswordCost{Passes: 1, KiB: 8}
	hashed := hashOfNobody(cost)
	if err := CheckPasswordHash(hashed); err != nil {
		t.Error(err)
	}
	if fits, outdated := passwordFits("", hashed, cost); fits || outdated {
		t.Errorf("fits %v, outdated %v", fits, outdated)
	}
	if other := hashOfNobody(cost); other == hashed || len(other) != len(HashPassword("secret", cost)) {
		t.Errorf("%q after %q", other, hashed)
	}
}
