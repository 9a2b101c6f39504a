package jqprom_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/jqprom"
)

func TestOnlyShowsSomeQueues(t *testing.T) {
	registry := prometheus.NewRegistry()
	jobs := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "jobs"}, []string{"state", "queue"})
	up := prometheus.NewGauge(prometheus.GaugeOpts{Name: "up"})
	foreign := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "foreign"}, []string{"queue"})
	registry.MustRegister(jobs, up, foreign)
	jobs.WithLabelValues("ready", "mail").Set(1)
	jobs.WithLabelValues("ready", "billing").Set(2)
	foreign.WithLabelValues("billing").Set(3)
	for range 2 { // what is left out once is not lost
		got, err := jqprom.OnlyQueues(registry, func(queue string) bool { return queue == "mail" }).Gather()
		require.NoError(t, err)
		require.Len(t, got, 2)
		assert.Equal(t, "jobs", got[0].GetName())
		assert.Len(t, got[0].GetMetric(), 1)
		assert.Equal(t, "up", got[1].GetName())
	}
	all, err := registry.Gather()
	require.NoError(t, err)
	assert.Len(t, all, 3)
}
