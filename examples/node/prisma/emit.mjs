// Places an order and emits its event in one transaction, with a Prisma model of the outbox table.

import { PrismaPg } from '@prisma/adapter-pg'
import { PrismaClient } from '@prisma/client'

class PaymentRefused extends Error {}

// placeOrder creates an order and its event. The caller's transaction commits both or neither: use
// its client tx here, never the one outside.
async function placeOrder(tx, customer, totalCents) {
  const order = await tx.order.create({ data: { customer, totalCents } })
  const event = await tx.outboxEvent.create({
    data: {
      aggregateType: 'order',
      aggregateId: order.id,
      eventType: 'OrderPlaced',
      payload: { orderId: order.id, customer, totalCents },
      headers: { 'schema-version': '1' },
    },
  })
  return { orderId: order.id, eventId: event.id }
}

const prisma = new PrismaClient({
  adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }),
})

const placed = await prisma.$transaction((tx) => placeOrder(tx, 'Zoë', 1250))
console.log('placed', placed.orderId, 'event', placed.eventId)

let refused
try {
  await prisma.$transaction(async (tx) => {
    refused = await placeOrder(tx, 'Zoë', 1250)
    throw new PaymentRefused() // rolls back the order and the event
  })
} catch (error) {
  if (!(error instanceof PaymentRefused)) throw error
  console.log('rolled back', refused.orderId, 'event', refused.eventId)
}

await prisma.$disconnect()
