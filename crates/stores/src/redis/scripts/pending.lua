#!lua flags=no-writes,allow-oom
-- A part of the list of what is pending: of each lane the next few by due time and id, after a position.
--
-- `wait` goes by ready time, rank and id. Up to the last millisecond read of a lane nothing is missing; that one is read
-- rank by rank if it is all there is, so that a burst in one millisecond can be paged through. What waits for another
-- time than its due time is left out: `retried` has it.
--
-- KEYS    as in prelude.lua
-- ARGV    how many per lane at most; due time (6 bytes) and id of the position; the due time (6 bytes) before which all wanted
--         ones lie, or ""; then lanes
-- result  the position, due time and id, up to which nothing is missing ("" if nothing is missing at all), then due times
--         and ids of what was found, each as one string
local limit, from_due, from_id = tonumber(ARGV[FIRST]), ARGV[FIRST + 1], ARGV[FIRST + 2]
local to = ARGV[FIRST + 3] == '' and '\255' or ARGV[FIRST + 3]
local answers = { '' }
local horizons = {}

local function add_answer(own, member)
  local marks = member:byte(-1)
  if marks >= 32 then marks = 0 end
  if marks < 2 then
    answers[#answers + 1] = member:sub(#own + 1, #own + 6) .. member:sub(#own + 8, marks > 0 and -2 or -1)
  end
end

local function id_of(own, member)
  return member:sub(#own + 8, member:byte(-1) < 32 and -2 or -1)
end

-- One millisecond, rank by rank, the ids behind `after`. Returns whether all of it was read.
local function of_millisecond(own, due, after)
  local whole = true
  for rank = 0, 9 do
    local head = own .. due .. char(rank)
    -- Behind the id there may be marks, which sort before every character of an id.
    local from = after == '' and '[' .. head or '(' .. head .. after .. '\31'
    local found = call('ZRANGEBYLEX', wait, from, '(' .. head .. '\255', 'LIMIT', 0, limit)
    for _, member in ipairs(found) do add_answer(own, member) end
    if #found == limit then
      whole = false
      horizons[#horizons + 1] = due .. id_of(own, found[limit])
    end
  end
  return whole
end

for i = FIRST + 4, #ARGV do
  local own = tag(ARGV[i])
  if from_id == '' or of_millisecond(own, from_due, from_id) then
    local from = '[' .. own .. (from_id == '' and from_due or six(time(from_due) + 1))
    local found = call('ZRANGEBYLEX', wait, from, '(' .. own .. to, 'LIMIT', 0, limit)
    local first, last = found[1], found[limit]
    if not last then
      for _, member in ipairs(found) do add_answer(own, member) end
    else
      local last_due = last:sub(#own + 1, #own + 6)
      if first:sub(#own + 1, #own + 6) == last_due then
        if of_millisecond(own, last_due, '') then horizons[#horizons + 1] = last_due .. '\255' end
      else
        for _, member in ipairs(found) do
          if member:sub(#own + 1, #own + 6) ~= last_due then add_answer(own, member) end
        end
        horizons[#horizons + 1] = last_due
      end
    end
  end
end

-- Bytes are compared one by one: see the prelude on strings and <.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = a:byte(i), b:byte(i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
for _, horizon in ipairs(horizons) do
  if answers[1] == '' or before(horizon, answers[1]) then answers[1] = horizon end
end
return answers
