-- name: CreateOrder :one
INSERT INTO orders (item)
VALUES ($1)
RETURNING *;

-- name: TakeItem :execrows
UPDATE items
SET stock = stock - 1
WHERE name = $1 AND stock > 0;
