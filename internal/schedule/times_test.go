package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-ed332417/jq/internal/store"
)

var winter = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func parsed(t rapid.TB, expression, zone string) Times {
	times, err := Parse(expression, zone, winter)
	require.NoError(t, err, expression)
	return times
}

// TestTimesAroundChanges has what each expression comes to between two moments, as shown by the clock on the wall with its offset.
func TestTimesAroundChanges(t *testing.T) {
	const berlin, newYork, kolkata, lordHowe, havana = "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Havana"
	for _, c := range []struct {
		what, cron, zone, after, until string
		want                           []string
	}{
		{
			"a time in the gap becomes its end", "30 2 * * *", berlin, "2026-03-28T12:00:00+01:00", "2026-03-30T12:00:00+02:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		{
			"all times in the gap become one", "*/20 2,3 * * *", berlin, "2026-03-29T00:00:00+01:00", "2026-03-29T12:00:00+02:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00"},
		},
		{
			"the first passage counts", "30 2 * * *", berlin, "2026-10-24T12:00:00+02:00", "2026-10-26T12:00:00+01:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		},
		{
			"and no time of the second", "*/30 2 * * *", berlin, "2026-10-25T02:10:00+01:00", "2026-10-26T02:10:00+01:00",
			[]string{"2026-10-26T02:00:00+01:00"},
		},
		{
			"the hour after the change comes once", "0 3 * * *", berlin, "2026-10-25T00:00:00+02:00", "2026-10-25T12:00:00+01:00",
			[]string{"2026-10-25T03:00:00+01:00"},
		},
		{
			"every half hour goes by the time that passes, through the gap", "*/30 * * * *", berlin, "2026-03-29T01:10:00+01:00", "2026-03-29T03:40:00+02:00",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"},
		},
		{
			"and through both passages", "*/30 * * * *", berlin, "2026-10-25T01:40:00+02:00", "2026-10-25T03:10:00+01:00",
			[]string{
				"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00",
			},
		},
		{
			"in New York", "30 2 * * *", newYork, "2026-03-07T12:00:00-05:00", "2026-03-09T12:00:00-04:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"},
		},
		{
			"in New York, back", "30 1 * * *", newYork, "2026-10-31T12:00:00-04:00", "2026-11-02T12:00:00-05:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"},
		},
		{
			"in Kolkata, which has no change and half an hour", "0 8 * * *", kolkata, "2026-03-28T12:00:00+05:30", "2026-03-30T12:00:00+05:30",
			[]string{"2026-03-29T08:00:00+05:30", "2026-03-30T08:00:00+05:30"},
		},
		{
			"on Lord Howe, forward by half an hour", "15 2 * * *", lordHowe, "2026-10-03T12:00:00+10:30", "2026-10-05T12:00:00+11:00",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"},
		},
		{
			"on Lord Howe, back by half an hour", "45 1 * * *", lordHowe, "2026-04-04T12:00:00+11:00", "2026-04-06T12:00:00+10:30",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"},
		},
		{
			"on Lord Howe, each hour", "0 * * * *", lordHowe, "2026-10-04T00:30:00+10:30", "2026-10-04T04:30:00+11:00",
			[]string{"2026-10-04T01:00:00+10:30", "2026-10-04T03:00:00+11:00", "2026-10-04T04:00:00+11:00"},
		},
		{
			"on a day whose midnight is skipped", "0 0 8 3 *", havana, "2026-03-07T12:00:00-05:00", "2026-03-09T12:00:00-04:00",
			[]string{"2026-03-08T01:00:00-04:00"},
		},
		{
			"each hour of a day whose midnight is skipped", "0 * 8 3 *", havana, "2026-03-07T12:00:00-05:00", "2026-03-08T02:30:00-04:00",
			[]string{"2026-03-08T01:00:00-04:00", "2026-03-08T02:00:00-04:00"},
		},
		{"each day, elapsed", "@every 12h", berlin, "2026-03-28T12:00:00+01:00", "2026-03-29T13:00:00+02:00", []string{"2026-03-29T00:00:00+01:00", "2026-03-29T13:00:00+02:00"}},
		{"Sunday is 7 too", "0 8 * * 5-7", "", "2026-01-01T12:00:00Z", "2026-01-05T12:00:00Z", []string{"2026-01-02T08:00:00Z", "2026-01-03T08:00:00Z", "2026-01-04T08:00:00Z"}},
		{"Sunday is 7 in steps", "0 8 * * 01-7/3", "", "2026-01-01T12:00:00Z", "2026-01-09T12:00:00Z", []string{"2026-01-04T08:00:00Z", "2026-01-05T08:00:00Z", "2026-01-08T08:00:00Z"}},
		{"Sunday is 7 after a name", "0 8 * * 2,Fri-7/2", "", "2026-01-01T12:00:00Z", "2026-01-07T12:00:00Z", []string{"2026-01-02T08:00:00Z", "2026-01-04T08:00:00Z", "2026-01-06T08:00:00Z"}},
		{"Sunday alone is 7", "0 8 * * 7-7/2", "", "2026-01-01T12:00:00Z", "2026-01-12T12:00:00Z", []string{"2026-01-04T08:00:00Z", "2026-01-11T08:00:00Z"}},
		{"seconds", "*/20 59 23 31 12 *", "", "2026-12-31T12:00:00Z", "2027-01-01T12:00:00Z", []string{"2026-12-31T23:59:00Z", "2026-12-31T23:59:20Z", "2026-12-31T23:59:40Z"}},
		{"the last of February", "0 0 29 2 *", "", "2026-01-01T12:00:00Z", "2029-01-01T12:00:00Z", []string{"2028-02-29T00:00:00Z"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			times := parsed(t, c.cron, c.zone)
			var got []string
			for at := times.Next(moment(t, c.after)); !at.IsZero() && !at.After(moment(t, c.until)); at = times.Next(at) {
				got = append(got, at.In(times.zone).Format(time.RFC3339))
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

var zones = []string{"Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Havana", "UTC"}

// TestTimesAreThoseOfAWalk walks through the minutes around a change and writes down what the rules say of each.
func TestTimesAreThoseOfAWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minute := rapid.SampledFrom([]string{"*", "*/7", "0", "30", "15,45"}).Draw(t, "minute")
		hour := rapid.SampledFrom([]string{"*", "*/2", "0", "1", "2", "0-3", "1,2"}).Draw(t, "hour")
		expression := minute + " " + hour + " * * " + rapid.SampledFrom([]string{"*", "0", "0-6"}).Draw(t, "day")
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		month := rapid.SampledFrom([]time.Month{3, 4, 10, 11}).Draw(t, "month")
		times := parsed(t, expression, zone)
		start := time.Date(2026, month, rapid.IntRange(1, 29).Draw(t, "date"), rapid.IntRange(0, 23).Draw(t, "at"), 0, 0, 0, time.UTC)
		end := start.Add(50 * time.Hour)
		var got []time.Time
		for at := times.Next(start.Add(-1)); at.Before(end); at = times.Next(at) {
			got = append(got, at.UTC())
		}
		if want := walked(times, start, end); !slices.Equal(want, got) {
			t.Fatalf("%s in %s from %v: want %v, got %v", expression, zone, start, want, got)
		}
	})
}

// walked has the times in [start, end), found minute by minute.
func walked(times Times, start, end time.Time) []time.Time {
	spec := *times.spec
	matches := func(shown time.Time) bool {
		return spec.Next(shown.Add(-time.Second)).Equal(shown)
	}
	shownAt := func(at time.Time) time.Time {
		_, offset := at.In(times.zone).Zone()
		return at.UTC().Add(time.Duration(offset) * time.Second)
	}
	seen := map[time.Time]bool{} // what the clock has shown, from long before the start
	for at := start.Add(-30 * time.Hour); at.Before(start); at = at.Add(time.Minute) {
		seen[shownAt(at)] = true
	}
	var want []time.Time
	for at := start; at.Before(end); at = at.Add(time.Minute) {
		shown, before := shownAt(at), shownAt(at.Add(-time.Minute))
		hit := matches(shown) && (times.spec.Hour&starBit != 0 || !seen[shown])
		if times.spec.Hour&starBit == 0 {
			for skipped := before.Add(time.Minute); skipped.Before(shown); skipped = skipped.Add(time.Minute) {
				hit = hit || matches(skipped)
			}
		}
		seen[shown] = true
		if hit {
			want = append(want, at)
		}
	}
	return want
}

func TestLatestIsTheLastOfAWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		expression := rapid.SampledFrom([]string{
			"* * * * * *", "*/7 * * * *", "0 2 * * *", "* * 0-12 * * *", "0 0 1 1 *", "30 2 29 2 *", "@every 90s", "@weekly", "0 3 25 10 *",
		}).Draw(t, "expression")
		times := parsed(t, expression, rapid.SampledFrom(zones).Draw(t, "zone"))
		from := times.Next(winter.Add(time.Duration(rapid.IntRange(0, 400*86400).Draw(t, "from")) * time.Second))
		steps := rapid.IntRange(0, 300).Draw(t, "steps")
		want := from
		for i := 0; i < steps && want.Year() < 2080; i++ { // 2100 has no 29 February, so that there is none for eight years
			want = times.Next(want)
		}
		now := want.Add(time.Duration(rapid.Int64Range(0, int64(times.Next(want).Sub(want))-1).Draw(t, "late")))
		if got := times.Latest(from, now); !got.Equal(want) {
			t.Fatalf("%s from %v to %v: want %v, got %v", expression, from, now, want, got)
		}
	})
}

func TestLatestOfTenYearsTakesFewSteps(t *testing.T) {
	for _, expression := range []string{"* * * * * *", "* * 0-12 * * *", "0 0 1 1 *", "@every 1s"} {
		times := parsed(t, expression, "Europe/Berlin")
		from := times.Next(winter)
		now := winter.AddDate(10, 0, 0).Add(15 * time.Hour)
		began := time.Now()
		latest := times.Latest(from, now)
		assert.Less(t, time.Since(began), 100*time.Millisecond, expression)
		assert.True(t, times.Next(latest).After(now), expression)
		assert.False(t, latest.After(now), expression)
	}
}

func TestParseRefuses(t *testing.T) {
	for expression, field := range map[string]string{
		"": "cron", "* * * *": "cron", "* * * * * * *": "cron", "60 * * * *": "cron", "0 0 31 2 *": "cron", "@never": "cron", "every day": "cron",
		"TZ=Asia/Tokyo 0 0 * * *": "cron", "CRON_TZ=UTC": "cron", "@every": "cron", "@every 500ms": "cron", "@every 1.5s": "cron", "@every -1s": "cron",
		"@every 99999999h": "cron", "@reboot": "cron", "0 0 L * *": "cron", "*/0 * * * *": "cron", "5-1 * * * *": "cron", "1,,2 * * * *": "cron", ", * * * *": "cron", "*-5 * * * *": "cron", "+5 * * * *": "cron",
	} {
		_, err := Parse(expression, "", winter)
		var invalid *store.InvalidError
		require.ErrorAs(t, err, &invalid, expression)
		assert.Equal(t, field, invalid.Field, expression)
	}
	for _, zone := range []string{"Local", "Europe/Atlantis", "../etc/passwd", "+02:00"} {
		_, err := Parse("@daily", zone, winter)
		require.ErrorContains(t, err, "timezone", zone)
	}
}

func TestUpcomingEndsWhereNothingComes(t *testing.T) {
	assert.Len(t, parsed(t, "@yearly", "").Upcoming(winter, 5), 5)
	never := Times{spec: &cron.SpecSchedule{Location: time.UTC}, zone: time.UTC}
	assert.Empty(t, never.Upcoming(winter, 5))
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"0 8 * * *", "@every 90s", "*/5 1-3 * JAN-MAR MON,7", "TZ=", "@", "? ? ? ? ?"} {
		f.Add(seed, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, expression, zone string) {
		times, err := Parse(expression, zone, winter)
		if err != nil {
			return
		}
		at := winter
		for range 20 {
			next := times.Next(at)
			if next.IsZero() {
				return
			}
			if !next.After(at) {
				t.Fatalf("%q in %q: %v does not come after %v", expression, zone, next, at)
			}
			at = next
		}
	})
}

func BenchmarkNext(b *testing.B) {
	for _, expression := range []string{"* * * * * *", "30 2 * * *", "*/5 * * * *", "0 0 1 1 *"} {
		b.Run(expression, func(b *testing.B) {
			times := parsed(b, expression, "Europe/Berlin")
			for b.Loop() {
				times.Next(winter)
			}
		})
	}
}
