#!lua flags=allow-oom
-- Cancels or moves what is pending, replays or purges what is dead.
--
-- KEYS    as in prelude.lua
-- ARGV    what: "cancel", "reschedule", "replay" or "purge"; then id and new due time (6 bytes, "" unless moved), in
--         pairs, no id twice
-- result  per pair: "d" done and whether it may have been delivered (1 byte); "t" too late and its state (1 byte);
--         "u" unknown
local IN_FLIGHT = 1
local what = ARGV[FIRST]
local wanted = (what == 'cancel' or what == 'reschedule') and PENDING or DEAD
local ids = {}
for i = FIRST + 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local packed = call('HMGET', msg, unpack(ids))
local claims = call('HMGET', claim, unpack(ids))
local answers = {}

local change = {}
function change.cancel(m)
  take(m)
  finished(m, CANCELLED)
  tally(counts, '#cancelled', 1)
end
function change.reschedule(m, due)
  take(m)
  m.due, m.ready = due, due
  put(m)
end
local function leave_the_dead(m)
  remove('ZREM', dead, m.due .. m.id)
  tally(counts, '#dead', -1)
  tally(counts, 'd' .. m.lane, -1)
end
function change.replay(m)
  leave_the_dead(m)
  for field, value in pairs(NO_LIFE) do m[field] = value end
  m.due, m.ready, m.lost = six(now), six(now), 0
  put(m)
end
function change.purge(m)
  leave_the_dead(m)
  remove('HDEL', msg, m.id)
  tally(counts, '#purged', 1)
end

for i, id in ipairs(ids) do
  local m = packed[i] and open(id, packed[i])
  if not m then
    answers[i] = 'u'
  elseif m.state ~= wanted or claims[i] then
    answers[i] = 't' .. char(claims[i] and IN_FLIGHT or m.state)
  else
    change[what](m, ARGV[FIRST + 2 * i])
    answers[i] = 'd' .. char(m.maybe)
  end
end

finish(2 * #ids + 32)
return answers
