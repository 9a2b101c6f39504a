// Package schedule computes the times of schedules, and makes the changes to schedules that servers, programs and people make.
// The store keeps schedules and knows nothing of expressions: see [store.ScheduleKeeper].
package schedule

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // time zones, also where the system has none

	"github.com/robfig/cron/v3"

	"github.com/seed-ed332417/jq/internal/store"
)

// Times are the times of an expression in a time zone.
//
// If the expression fixes the hours, it is read on the clock on the wall. When that clock goes forward, all times that it skips
// become one, at the moment when it goes forward. When it goes back, only the first passage counts. If the hour is *, and with
// @every, times go by the time that has passed.
type Times struct {
	every time.Duration
	spec  *cron.SpecSchedule // in UTC: it is applied to times on the wall; nil with @every
	zone  *time.Location
}

// minEvery is the shortest duration of @every. Servers look each second.
const minEvery = time.Second

var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Parse reads an expression and the name of a time zone. It returns an [*store.InvalidError] for the field cron or timezone if it
// cannot read them, or if the expression has no time within five years from now.
func Parse(expression, zone string, now time.Time) (Times, error) {
	t := Times{zone: time.UTC}
	if len(zone) > store.MaxNameBytes {
		return Times{}, refuse("timezone", fmt.Sprintf("must have at most %d bytes", store.MaxNameBytes))
	}
	if len(expression) > store.MaxNameBytes {
		return Times{}, refuse("cron", fmt.Sprintf("must have at most %d bytes", store.MaxNameBytes))
	}
	if zone != "" {
		var err error
		if t.zone, err = time.LoadLocation(zone); err != nil || zone == "Local" {
			return Times{}, refuse("timezone", fmt.Sprintf("must be the name of a time zone such as Europe/Berlin, or empty for UTC, and %q is none", zone))
		}
	}
	if every, ok := strings.CutPrefix(expression, "@every "); ok {
		var err error
		t.every, err = time.ParseDuration(strings.TrimSpace(every))
		if err != nil || t.every < minEvery || t.every > store.MaxDuration || t.every%time.Second != 0 {
			return Times{}, refuse("cron", fmt.Sprintf("must have whole seconds after @every, %v to %v, as in @every 90s", minEvery, store.MaxDuration))
		}
		return t, nil
	}
	if strings.Contains(expression, "TZ=") {
		return Times{}, refuse("cron", "must not have a time zone: set the field timezone")
	}
	parsed, err := parser.Parse(withSunday(expression))
	if err == nil && !strings.HasPrefix(expression, "@") {
		err = checkItems(expression)
	}
	if err != nil {
		return Times{}, refuse("cron", fmt.Sprintf("must have five fields (minute, hour, day of month, month, day of week), six with seconds first, "+
			"or be @hourly, @daily, @weekly, @monthly, @yearly or @every and a duration: %v", err))
	}
	t.spec = parsed.(*cron.SpecSchedule) //nolint:forcetypeassert // the parser returns another type for @every alone
	t.spec.Location = time.UTC
	if t.Next(now).IsZero() {
		return Times{}, refuse("cron", "must have a time within five years, and this has none")
	}
	return t, nil
}

func refuse(field, rule string) error {
	return &store.InvalidError{Item: -1, Field: field, Rule: rule}
}

var item = regexp.MustCompile(`^(\*|\?|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?$`)

// checkItems refuses what the parser lets pass, such as 1,,2 and *-5.
func checkItems(expression string) error {
	for one := range strings.FieldsSeq(expression) {
		for part := range strings.SplitSeq(one, ",") {
			if !item.MatchString(part) {
				return fmt.Errorf("%q is no value, range or step", one)
			}
		}
	}
	return nil
}

var (
	untilSunday = regexp.MustCompile(`^(?i:(0*[0-7]|sun|mon|tue|wed|thu|fri|sat)-)?0*7(?:/0*([1-9][0-9]{0,2}))?$`)
	dayNames    = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// withSunday replaces the day 7 by 0: both are Sunday, and the parser knows 0 only.
func withSunday(expression string) string {
	fields := strings.Fields(expression)
	if len(fields) < 5 {
		return expression
	}
	var days []string
	for day := range strings.SplitSeq(fields[len(fields)-1], ",") {
		found := untilSunday.FindStringSubmatch(day)
		if found == nil {
			days = append(days, day)
			continue
		}
		first := slices.Index(dayNames, strings.ToLower(found[1]))
		if first < 0 {
			first, _ = strconv.Atoi(cmp.Or(found[1], "7")) // the expression matches only numbers, here and below
		}
		step, _ := strconv.Atoi(cmp.Or(found[2], "1"))
		for d := first; d <= 7; d += step {
			days = append(days, strconv.Itoa(d%7))
		}
	}
	fields[len(fields)-1] = strings.Join(days, ",")
	return strings.Join(fields, " ")
}

// starBit is set in a field of the parser that is *.
const starBit = 1 << 63

// Next returns the first time after the given one. It is zero if there is none within five years.
func (t Times) Next(after time.Time) time.Time {
	switch {
	case t.spec == nil:
		return store.Truncate(after.Add(t.every))
	case t.spec.Hour&starBit != 0:
		return t.nextElapsed(after)
	default:
		return t.nextOnTheWall(after)
	}
}

// nextElapsed goes from one change of the zone's offset to the next. In between, the clock on the wall runs evenly.
func (t Times) nextElapsed(after time.Time) time.Time {
	for at := after.In(t.zone); ; {
		offset, end := segment(at)
		shown := t.spec.Next(wall(after, offset))
		if shown.IsZero() {
			return time.Time{}
		}
		if next := wall(shown, -offset); end.IsZero() || next.Before(end) {
			return next
		}
		at, after = end, end.Add(-1) // a time may lie at the end itself
	}
}

// nextOnTheWall goes from one time on the wall to the next, until one of them is after the given time.
func (t Times) nextOnTheWall(after time.Time) time.Time {
	_, offset := after.In(t.zone).Zone()
	for shown := wall(after, offset); ; {
		if shown = t.spec.Next(shown); shown.IsZero() {
			return time.Time{}
		}
		if next := t.moment(shown); next.After(after) {
			return next
		}
	}
}

// segment returns the offset of the zone and until when it has it at least; zero means for ever.
func segment(at time.Time) (offset int, end time.Time) {
	_, offset = at.Zone()
	if _, end = at.ZoneBounds(); !end.IsZero() && !end.After(at) { // as package time has it on 31 December of leap years after 2037
		end = at.Add(time.Hour)
	}
	return offset, end
}

// wall returns the time that a clock with the offset shows, as a time in UTC.
func wall(at time.Time, offset int) time.Time {
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

// moment returns when the clock on the wall shows a time first, or skips it.
func (t Times) moment(shown time.Time) time.Time {
	const widest = 26 * time.Hour // between the times on two clocks
	at := shown.Add(-widest).In(t.zone)
	for {
		offset, end := segment(at)
		moment := wall(shown, -offset)
		if end.IsZero() || moment.Before(end) {
			return moment
		}
		if _, later := end.Zone(); shown.Before(wall(end, later)) {
			return end.UTC() // the clock goes forward over it
		}
		at = end
	}
}

// Latest returns the latest time that is not after now, of which from is one or at least a lower bound.
func (t Times) Latest(from, now time.Time) time.Time {
	if t.spec == nil {
		return from.Add(now.Sub(from).Truncate(t.every))
	}
	latest, end := from, now // no time lies between end and now
	for back := time.Minute; now.Add(-back).After(from); back *= 2 {
		if found := t.Next(now.Add(-back)); !found.IsZero() && !found.After(now) {
			latest = found
			break
		}
		end = now.Add(-back)
	}
	for {
		following := t.Next(latest)
		if following.IsZero() || following.After(now) {
			return latest
		}
		middle := latest.Add(end.Sub(latest) / 2)
		if found := t.Next(middle); found.IsZero() || found.After(now) {
			end = middle
			latest = following
		} else {
			latest = found
		}
	}
}

// Upcoming returns the next n times after the given one, or fewer if there are not as many.
func (t Times) Upcoming(after time.Time, n int) []time.Time {
	var list []time.Time
	for range n {
		if after = t.Next(after); after.IsZero() || !after.Before(store.MaxTime) {
			break
		}
		list = append(list, after)
	}
	return list
}
