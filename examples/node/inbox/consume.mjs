// Makes an invoice for each order once, with pg, kafkajs and inbox_mark.

import { Kafka, logLevel } from 'kafkajs'
import pg from 'pg'

const name = 'billing' // of the inbox: another name processes all events again

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })
// Without a listener the end of a connection ends the program, whether the pool has it or a query.
const lost = (error) => console.error('connection lost:', error.message)
pool.on('error', lost)

// processEvent marks the event and makes the invoice in one transaction, or does nothing for a
// duplicate.
async function processEvent({ topic, partition, message }) {
  // A header that a record has twice is an array.
  const id = [message.headers?.id].flat()[0]?.toString()
  const where = `${topic}, partition ${partition}, offset ${message.offset}`
  if (id === undefined) throw new Error(`${where}: no header id`)
  if (/^-?\d+$/.test(id)) throw new Error(`${where}: id ${id} is a number, which another table has too`)
  const client = await pool.connect()
  client.on('error', lost)
  try {
    await client.query('BEGIN')
    const { rows } = await client.query(
      'SELECT public.inbox_mark($1::text, $2::text, $3::timestamptz) AS fresh',
      [name, id, new Date(Number(message.timestamp))],
    )
    if (rows[0].fresh) {
      const order = JSON.parse(message.value.toString())
      await client.query('INSERT INTO public.invoices (order_id, total_cents) VALUES ($1, $2)', [
        order.orderId,
        order.totalCents,
      ])
    }
    await client.query('COMMIT')
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {}) // which fails if the connection is gone
    throw error
  } finally {
    client.off('error', lost)
    client.release()
  }
}

const kafka = new Kafka({ brokers: process.env.KAFKA_BROKERS.split(','), logLevel: logLevel.ERROR })
const consumer = kafka.consumer({ groupId: name, readUncommitted: false })
await consumer.connect()
await consumer.subscribe({ topic: 'outbox.event.order', fromBeginning: true })
// kafkajs commits the offset of a record only after eachMessage has returned. After an error it
// calls eachMessage again, and then begins again at the committed offset.
await consumer.run({ eachMessage: processEvent })

for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, async () => {
    await consumer.disconnect()
    await pool.end()
  })
}
