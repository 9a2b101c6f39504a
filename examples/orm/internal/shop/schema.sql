CREATE TABLE items (
	name text PRIMARY KEY,
	stock bigint NOT NULL
);

CREATE TABLE orders (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	item text NOT NULL
);
