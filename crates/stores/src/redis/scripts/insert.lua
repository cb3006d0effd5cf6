#!lua
-- Takes messages. Not run at all when Redis is out of memory.
--
-- KEYS    as in prelude.lua
-- ARGV    id and packed message, in pairs, no id twice; pending, or a dead letter that was moved here
-- result  per pair: "a" accepted; "d" duplicate with the first one's state (1 byte) and due time (6); "c" conflict
local IN_FLIGHT = 1
local ids, packed, some_dead = {}, {}, false
for i = FIRST, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
  packed[#packed + 1] = ARGV[i + 1]
  some_dead = some_dead or ARGV[i + 1]:byte(1) % ACCEPTED == DEAD
end
-- A key of another type ends the script here, before anything is written: Redis takes nothing back, and a message that is not
-- in `wait` would be a duplicate for ever and never be delivered.
call('ZCARD', wait)
if some_dead then call('ZCARD', dead) end
call('HLEN', count)
local known = call('HMGET', msg, unpack(ids))
local answers = {}

for i, id in ipairs(ids) do
  local first, new = known[i], packed[i]
  local state = first and #first > 16 and first:byte(1) % ACCEPTED
  if first and state ~= CANCELLED then
    -- What cannot be read is not the same.
    if not state or state > CANCELLED or first:sub(9, 16) ~= new:sub(9, 16) then
      answers[i] = 'c'
    else
      if state == PENDING and call('HEXISTS', claim, id) == 1 then state = IN_FLIGHT end
      answers[i] = 'd' .. char(state) .. first:sub(3, 8)
    end
  else
    if first then remove('ZREM', ended, char(CANCELLED) .. first:sub(3, 8) .. id) end
    local len, due = new:byte(17), new:sub(3, 8)
    local lane = (floor(new:byte(2) / 32) % 2 == 1 and 's' or 'q') .. new:sub(18, 17 + len)
    add('HSET', msg, id, new)
    if new:byte(1) % ACCEPTED == DEAD then
      add('ZADD', dead, 0, due .. id)
      increment(counts, '#dead', 1)
      increment(counts, 'd' .. lane, 1)
    else
      add('ZADD', wait, 0, tag(lane) .. due .. char(floor(new:byte(1) / 16)) .. id)
      count_pending(lane, due, 1)
    end
    increment(counts, '#accepted', 1)
    answers[i] = 'a'
  end
end

finish(0)
return answers
