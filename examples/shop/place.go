package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/seed-ed332417/jq"
)

// The queue of the orders. Customers take turns in it, and none has more than two jobs in flight, so that a reseller with a thousand
// orders does not hold up the others. Raise Declared with each change.
const orderQueue = "orders"

var queues = map[string]jq.QueueOptions{
	orderQueue: {Policy: &jq.Policy{Owner: "shop", Declared: 1, Fair: true, MaxPerKey: 2}},
	"reports":  {},
}

// flow is the jobs of an order: pay, then pack and write the invoice, then ship.
func flow(o order, card string) *jq.Flow {
	job := jq.EnqueueOptions{Queue: orderQueue, LimitKey: o.Customer}
	once := job
	once.UniqueKey, once.UniqueFor = "order/"+o.Customer+"/"+o.Item, time.Minute

	var f jq.Flow
	pay := f.Add(Pay{Order: o.ID, Cents: o.Cents, Card: card}, &once)
	pack := f.Add(Pack{Order: o.ID}, &job, pay)
	invoice := f.Add(Invoice{Order: o.ID}, &job, pay)
	f.Add(Ship{Order: o.ID}, &job, pack, invoice)
	return &f
}

// place stores an order and its jobs in one transaction: all of them, or nothing. If the customer has ordered the same item within the last
// minute, that is a double click: place stores nothing, and returns the first order. So it is safe to repeat after any error.
func (s *shop) place(ctx context.Context, o order, card string) (placed order, twice bool, err error) {
	tx, err := s.orders.BeginTxx(ctx, nil)
	if err != nil {
		return order{}, false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if err := s.orders.insert(ctx, tx, &o); err != nil {
		return order{}, false, err
	}
	jobs, err := s.client.EnqueueFlowTx(ctx, tx, flow(o, card), nil)
	if err != nil {
		return order{}, false, err
	}
	if pay := jobs[0]; pay.Duplicate {
		_ = tx.Rollback()
		first, err := s.orderOf(ctx, pay.ID)
		return first, true, err
	}
	return o, false, tx.Commit()
}

// orderOf returns the order that the job pays for.
func (s *shop) orderOf(ctx context.Context, id int64) (order, error) {
	job, err := s.client.Get(ctx, id)
	if err != nil {
		return order{}, err
	}
	var p Pay
	if err := json.Unmarshal(job.Payload, &p); err != nil {
		return order{}, err
	}
	return s.orders.get(ctx, p.Order)
}
