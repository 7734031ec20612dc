// Places an order and emits its event in one transaction, with pg and outbox_emit.

import { randomUUID } from 'node:crypto'
import pg from 'pg'

class PaymentRefused extends Error {}

// placeOrder inserts an order and its event. The caller's transaction commits both or neither.
async function placeOrder(client, customer, totalCents) {
  const orderId = randomUUID()
  await client.query('INSERT INTO public.orders (id, customer, total_cents) VALUES ($1, $2, $3)', [
    orderId,
    customer,
    totalCents,
  ])
  // pg sends objects as JSON. It sends arrays as those of PostgreSQL: pass JSON.stringify(array).
  const { rows } = await client.query(
    `SELECT public.outbox_emit('order', $1, 'OrderPlaced', $2, $3) AS id`,
    [orderId, { orderId, customer, totalCents }, { 'schema-version': '1' }],
  )
  return { orderId, eventId: rows[0].id }
}

// transaction runs work between BEGIN and COMMIT on one client. Queries on the pool itself may
// each take another connection, and then belong to no transaction.
async function transaction(pool, work) {
  const client = await pool.connect()
  const lost = () => {} // the query has the error; without a listener it ends the program
  client.on('error', lost)
  try {
    await client.query('BEGIN')
    const result = await work(client)
    await client.query('COMMIT')
    return result
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {}) // which fails if the connection is gone
    throw error
  } finally {
    client.off('error', lost)
    client.release()
  }
}

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })

const placed = await transaction(pool, (client) => placeOrder(client, 'Zoë', 1250))
console.log('placed', placed.orderId, 'event', placed.eventId)

let refused
try {
  await transaction(pool, async (client) => {
    refused = await placeOrder(client, 'Zoë', 1250)
    throw new PaymentRefused() // rolls back the order and the event
  })
} catch (error) {
  if (!(error instanceof PaymentRefused)) throw error
  console.log('rolled back', refused.orderId, 'event', refused.eventId)
}

await pool.end()
