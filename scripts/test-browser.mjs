// Drives the pages as a person would. Run by scripts/test-browser, which starts the server and says where it is.
import { readFileSync } from 'node:fs'
import { chromium } from 'playwright-core'

const { OPERATOR, TOKEN, READER, CHROMIUM, SHOTS } = process.env
const axe = readFileSync(new URL('node_modules/axe-core/axe.min.js', import.meta.url), 'utf8')
const WIDTHS = [390, 1440]
let failures = 0
const check = (holds, what) => {
  console.log(`${holds ? 'ok  ' : 'FAIL'} ${what}`)
  if (!holds) failures += 1
}

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] })

async function open(width, colorScheme) {
  // Scripts of ours are let in for axe only; the pages have none, which the server's policy enforces for everybody else.
  const context = await browser.newContext({ viewport: { width, height: width < 500 ? 844 : 900 }, colorScheme, bypassCSP: true })
  const page = await context.newPage()
  page.on('dialog', dialog => { check(false, `a dialog opened: ${dialog.message()}`); dialog.dismiss() })
  return page
}

async function logIn(page, token = TOKEN) {
  await page.goto(OPERATOR)
  await page.getByLabel('Your name').fill('Robin')
  await page.getByLabel('Token').fill(token)
  await page.getByRole('button', { name: 'Log in' }).click()
}

// 1. What a person does in the morning.
for (const width of WIDTHS) {
  const page = await open(width, 'light')
  const at = `${width} px:`
  await page.goto(`${OPERATOR}/dead`)
  check(page.url().includes('/login?next='), `${at} nobody looks without a token`)
  await page.getByLabel('Token').fill('not the token at all')
  await page.getByRole('button', { name: 'Log in' }).click()
  check(await page.getByRole('alert').isVisible(), `${at} a wrong token is told`)
  await page.getByLabel('Your name').fill('Robin')
  await page.getByLabel('Token').fill(TOKEN)
  await page.getByRole('button', { name: 'Log in' }).click()
  check(new URL(page.url()).pathname === '/dead', `${at} the login leads to where one wanted to go`)

  await page.getByRole('link', { name: 'Today' }).click()
  check(await page.getByText('need a person').isVisible() || await page.getByText('needs a person').isVisible(), `${at} Today says that something needs a person`)
  check(await page.locator('.chart svg rect').count() > 20, `${at} the trend is drawn`)
  check(await page.locator('.chart svg .c-gap').count() > 10, `${at} a day without its run is a gap`)
  check((await page.locator('figcaption').textContent()).includes('3 days without their run'), `${at} the trend is told in words too`)
  const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
  check(sideways <= 0, `${at} Today does not scroll sideways (${sideways} px)`)

  if (width === WIDTHS[0]) {
    await page.getByRole('link', { name: 'Dead letters' }).click()
    await page.getByRole('row').filter({ hasText: 'dead' }).getByRole('link', { name: /^Replay/ }).first().click()
    check(await page.getByText('It would be posted').isVisible(), `${at} the preview says what a replay would change`)
    check(await page.getByRole('heading', { name: /9\.90 EUR/ }).isVisible(), `${at} and shows the money`)
    await page.getByLabel('Why?').fill('the shop knows her now')
    await page.getByRole('button', { name: 'Replay event' }).click()
    check(await page.getByRole('status').isVisible(), `${at} the replay is confirmed`)
    for (let tries = 0; tries < 50 && !(await page.getByText('Posted:').isVisible()); tries++) await page.reload()
    check(await page.getByText('Posted:').isVisible(), `${at} the dead letter is posted`)
    check(await page.getByText('replay by Robin').isVisible(), `${at} its story names who replayed it`)
  } else {
    await page.getByRole('link', { name: 'Settlement' }).click()
    const before = await page.locator('p.answer').textContent()
    await page.locator('td, th').getByRole('link', { name: /^\d+$/ }).first().click()
    await page.getByLabel('How does it end?').selectOption('provider_error')
    await page.getByLabel('no way out').fill('their support confirmed it')
    await page.getByRole('button', { name: /^Resolve/ }).click()
    check(await page.getByRole('status').isVisible(), `${at} a discrepancy is resolved with a note`)
    check(before !== await page.locator('p.answer').textContent(), `${at} and is not counted as open any more`)
    await page.getByRole('link', { name: 'Audit' }).click()
    check(await page.getByRole('row').filter({ hasText: 'resolve' }).filter({ hasText: 'Robin' }).isVisible(), `${at} the audit names who did it`)
  }

  // A payload is text.
  await page.goto(`${OPERATOR}/events?id=evt_1001`)
  await page.getByRole('rowheader').getByRole('link').first().click()
  check(await page.getByLabel('Body').getByText("<script>document.title='owned'</script>").isVisible(), `${at} script in a payload is shown as text`)
  check(!(await page.title()).includes('owned'), `${at} and does not run`)
  await page.context().close()
}

// 2. A reader may look and finds no button; a foreign form changes nothing.
{
  const page = await open(1440, 'light')
  await logIn(page, READER)
  await page.goto(`${OPERATOR}/outbox?state=dead`)
  check(await page.getByRole('button', { name: /again/ }).count() === 0, 'a reader is offered no change')
  const answer = await page.request.post(`${OPERATOR}/outbox/requeue`, { form: { csrf: 'made up' }, headers: { origin: OPERATOR } })
  check(answer.status() === 403, `and cannot make one (${answer.status()})`)
  await page.context().close()
}

// 3. Every page, in both schemes and widths: axe, sideways scrolling, a picture.
const PAGES = ['/', '/events', '/events?state=parked', '/events/1', '/events/9', '/events/10/replay', '/ledger', '/ledger/entries/1',
  '/ledger/accounts', '/ledger/accounts/1?as_of=2030-01-01', '/entities', '/outbox', '/outbox/1', '/dead', '/settlement',
  '/settlement?show=runs', '/settlement/runs/1', '/settlement/discrepancies/1', '/sources', '/health', '/audit', '/nowhere']
for (const scheme of ['light', 'dark']) {
  for (const width of WIDTHS) {
    const page = await open(width, scheme)
    await page.goto(`${OPERATOR}/login`)
    await look(page, '/login', scheme, width)
    await logIn(page)
    for (const path of PAGES) {
      await page.goto(OPERATOR + path)
      await look(page, path, scheme, width)
    }
    await page.context().close()
  }
}

async function look(page, path, scheme, width) {
  const name = `${path === '/' ? 'today' : path.slice(1).replace(/[^a-z0-9]+/g, '-')}-${scheme}-${width}`
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }))
  const serious = violations.filter(v => ['serious', 'critical'].includes(v.impact))
  for (const v of serious) for (const node of v.nodes.slice(0, 3)) console.log(`     ${v.id}: ${node.html.slice(0, 160)} | ${node.failureSummary.split('\n')[1] ?? ''}`)
  const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
  if (serious.length || sideways > 0) check(false, `${name}: ${serious.length} serious findings, ${sideways} px sideways`)
  if (SHOTS) await page.screenshot({ path: `${SHOTS}/${name}.png`, fullPage: true })
}
check(true, `axe looked at ${(PAGES.length + 1) * 4} pages`)

await browser.close()
process.exit(failures ? 1 : 0)
