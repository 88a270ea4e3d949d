"""Everyday needs that almost no tool of the public sets serves: a search for one should find nothing.

The floor of `daemon/search/segment.py` was learned with the first thirty and tested with the others. A few are
close to a tool: a recipe for banana bread finds a server of Chinese recipes.
"""

UNSERVED = """\
book a table at an Italian restaurant for tonight
order a pizza with extra cheese
tune my guitar
water the plants in the garden
what is the best recipe for banana bread
start the washing machine
book a dentist appointment
compose a symphony in D minor
check my blood pressure readings
rent a car in Lisbon for the weekend
plan a workout for my legs
identify this mushroom from its cap
translate a love letter into Italian
change the oil of my car
knit a sweater pattern for a toddler
control the thermostat in the living room
calculate the mortgage payment for my house
buy two tickets for the opera
track my sleep from my smartwatch
feed the cat while I am away
transcribe a voice memo from my phone
find a plumber nearby who works on Sundays
what are the winning lottery numbers
teach me chess openings
print a shipping label for a parcel
remove red eyes from a portrait photo
file my income tax return
adopt a dog from a shelter
measure the air quality in my bedroom
write a eulogy for my grandfather
turn off the kitchen lights
reserve a flight to Tokyo
play some jazz music
hire a babysitter for Friday evening
convert my old cassette tapes
diagnose why my knee hurts
pay my electricity bill
mow the lawn on Saturday
send flowers to my mother
sing me a lullaby
who won the football match last night
renew my passport
book a taxi to the airport
fold an origami crane
repair a leaking faucet
interpret my dream about flying
make a reservation at a campsite
prescribe medicine for a cold
sell my used bicycle
steam clean the carpet
learn to dance the tango
predict tomorrow's horoscope
milk the cows in the barn
design a tattoo of a dragon
brew a cup of espresso
vaccinate my puppy
donate blood at the hospital
trim the hedge in front of the house
charge my electric car
choose paint for the nursery walls""".splitlines()
